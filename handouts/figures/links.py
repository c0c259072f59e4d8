"""How fast each step of the hierarchy is, on a logarithmic scale."""

from __future__ import annotations

import math

from handouts.drawing import DARK, LIGHT, MIDDLE, RULE, Canvas
from multirank import ETHERNET, ETHERNET_10, INFINIBAND, NVLINK, PCIE

# Inside the device: 132 multiprocessors x 128 bytes x 1.755 GHz, and the data sheet's HBM3.
_STEPS = (
    ("shared memory, all together", 132 * 128 * 1.755e9, DARK),
    ("HBM3", 3.35e12, DARK),
    ("NVLink 5 (Blackwell)", 900e9, MIDDLE),
    (NVLINK.name, NVLINK.bandwidth, MIDDLE),
    (PCIE.name, PCIE.bandwidth, LIGHT),
    (INFINIBAND.name, INFINIBAND.bandwidth, LIGHT),
    (ETHERNET.name, ETHERNET.bandwidth, "#fff"),
    (ETHERNET_10.name, ETHERNET_10.bandwidth, "#fff"),
)
_LEFT, _ROW = 190.0, 24.0
_LOW, _HIGH = 9.0, 14.0  # powers of ten


def draw() -> dict[str, str]:
    """The bars."""
    canvas = Canvas(44 + _ROW * len(_STEPS))
    bottom = 10 + _ROW * len(_STEPS)

    def x(rate: float) -> float:
        return _LEFT + (math.log10(rate) - _LOW) / (_HIGH - _LOW) * (canvas.width - _LEFT - 60)

    ticks = ("1 GB/s", "10 GB/s", "100 GB/s", "1 TB/s", "10 TB/s", "100 TB/s")
    for power, told in enumerate(ticks, start=9):
        canvas.line(x(10**power), 6, x(10**power), bottom, color=RULE, width=0.5)
        canvas.text(x(10**power), bottom + 18, told, at="middle", size=11)
    for place, (name, rate, fill) in enumerate(_STEPS):
        y = 10 + _ROW * place
        canvas.text(_LEFT - 8, y + 14, name, at="end")
        canvas.box(_LEFT, y, x(rate) - _LEFT, _ROW - 6, fill)
        told = f"{rate / 1e12:.3g} TB/s" if rate >= 1e12 else f"{rate / 1e9:.3g} GB/s"
        canvas.text(x(rate) + 6, y + 14, told, size=11, over=True)
    return {"links": canvas.svg()}
