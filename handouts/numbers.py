"""Every number that the handout works out: computed by reference/accounting.py where it can be,
and else counted on the reference's schedules or on the model of a network. None is typed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, get_args

from torch import nn

from multirank import ETHERNET, ETHERNET_10, INFINIBAND, NVLINK, PCIE
from reference import accounting, bandwidth, ddp
from reference import pipeline_parallel as pipeline

from . import modelled

H100_FLOPS, MFU = 989e12, 0.4  # FLOPs per second in bfloat16, from the data sheet
DEVICE_BYTES = 80e9
HOURS_OF_DAY = 24

Numbers = dict[str, Any]


def numbers() -> Numbers:
    """All of them by name, as text or, where the name ends in "table", as rows of text."""
    found: Numbers = {}
    for chapter in (
        introduction,
        collectives,
        bandwidths,
        data_parallel,
        tensor_parallel,
        pipelines,
        scale,
        beyond,
    ):
        new = chapter()
        assert not found.keys() & new.keys(), found.keys() & new.keys()
        found |= new
    return found


# --- By chapter ----------------------------------------------------------------------------------


def introduction() -> Numbers:
    """Why many devices, and what a message costs."""
    parameters, tokens, many = 70e9, 15e12, 1024
    flops = accounting.training_flops(parameters, tokens)
    one = accounting.training_days(flops, 1, H100_FLOPS, MFU)
    alpha, beta, messages, size = 10e-6, 50e9, 1000, 1000
    return {
        "intro-parameters": count(parameters),
        "intro-tokens": count(tokens),
        "intro-flops": scientific(flops),
        "intro-devices": str(many),
        "intro-years-one": f"{one / 365:.0f}",
        "intro-days-many": f"{accounting.training_days(flops, many, H100_FLOPS, MFU):.0f}",
        "bytes-per-parameter": f"{accounting.state_bytes(1, 'ddp', 1):.0f}",
        "intro-state": size_text(accounting.state_bytes(parameters, "ddp", 1)),
        "fabrics-table": [
            [fabric.name, time_text(fabric.latency), rate_text(fabric.bandwidth)]
            for fabric in (NVLINK, PCIE, INFINIBAND, ETHERNET, ETHERNET_10)
        ],
        "crossover-infiniband": size_text(INFINIBAND.latency * INFINIBAND.bandwidth),
        "q-many-alpha": time_text(alpha),
        "q-many-messages": time_text(messages * (alpha + size / beta)),
        "q-many-messages-bytes": time_text(messages * size / beta),
        "q-one-message": time_text(alpha + messages * size / beta),
    }


def collectives() -> Numbers:
    """Bytes and times of an all-reduce."""
    small, large, n = 4096, 2**26, 8
    found: Numbers = {
        f"ar-factor-{ranks}": f"{accounting.ring_all_reduce_bytes(1.0, ranks):g}"
        for ranks in (4, 8)
    }
    for name, size in (("small", small), ("large", large)):
        ring = accounting.ring_all_reduce_seconds(size, n, INFINIBAND.bandwidth, INFINIBAND.latency)
        tree = modelled.seconds(modelled.trees, n, size, INFINIBAND)
        found |= {
            f"ar-{name}": binary(size),
            f"ar-{name}-ring": time_text(ring),
            f"ar-{name}-tree": time_text(tree),
        }
    naive = modelled.seconds(modelled.naive, n, large, modelled.GRADED)
    found["naive-factor"] = (
        f"{naive / modelled.seconds(modelled.ring, n, large, modelled.GRADED):.3g}"
    )
    sent = accounting.ring_all_reduce_bytes(4 * 10**6, 4)
    return found | {
        "graded-latency": time_text(modelled.GRADED.latency),
        "predict-ar-bytes": f"{sent:.0f}",
        "predict-ar-messages": str(2 * (4 - 1)),
        "q-whole-ring": times((n - 1) / accounting.ring_all_reduce_bytes(1, n)),
    }


def bandwidths() -> Numbers:
    """The worked example of the docstring, and the one to predict."""
    numel, n, seconds = 100_000_000, 4, 1.6e-3
    size = 4 * numel
    predicted = accounting.ring_all_reduce_seconds(2**26, 8, NVLINK.bandwidth, NVLINK.latency)
    rate = bandwidth.effective_bandwidth("all_reduce", 2**26, 8, predicted)
    return {
        "bus-numel": "100 million",
        "bus-seconds": time_text(seconds),
        "bus-size": size_text(size),
        "bus-alg": rate_text(size / seconds),
        "bus-bus": rate_text(bandwidth.effective_bandwidth("all_reduce", size, n, seconds)),
        "half-bandwidth-8": size_text(8 * INFINIBAND.latency * INFINIBAND.bandwidth),
        "nvlink-latency": time_text(NVLINK.latency),
        "predict-bus-steps": str(2 * (8 - 1)),
        "predict-bus-us": f"{predicted * 1e6:.0f}",
        "predict-bus-rate": f"{rate / 1e9:.0f}",
        "q-gather-size": binary(8 * 2**20),
    }


def data_parallel() -> Numbers:
    """The small MLP whose gradients are to be predicted, and a network that bounds the step."""
    layers = nn.Sequential(*[nn.Linear(256, 256) for _ in range(4)])
    size = sum(parameter.nbytes for parameter in layers.parameters())
    each, count_of_layers = 4e-3, 8
    return {
        "predict-ddp-bytes": str(size),
        "predict-ddp-calls": str(len(ddp.partition_buckets(layers.parameters(), 0.5))),
        "predict-ddp-wire": f"{accounting.ring_all_reduce_bytes(size, 4):.0f}",
        "q-ddp-layers": str(count_of_layers),
        "q-ddp-reduce": time_text(each),
        "q-ddp-network": time_text(count_of_layers * each),
    }


def tensor_parallel() -> Numbers:
    """One layer, as large as in a model of 70 B parameters."""
    batch, sequence, hidden, n, tokens_known = 1, 8192, 8192, 8, 128_256
    sent = accounting.tensor_parallel_bytes(batch, sequence, hidden, n)
    each = 2 * batch * sequence * hidden

    def seconds(fabric: Any) -> float:
        return 4 * accounting.ring_all_reduce_seconds(each, n, fabric.bandwidth, fabric.latency)

    # Gathered, a part of the logits comes from each other rank; else, three numbers all around.
    gathered = (n - 1) / n * 4 * tokens_known
    return {
        "tp-batch": str(batch),
        "tp-sequence": str(sequence),
        "tp-hidden": str(hidden),
        "tp-bytes": size_text(sent),
        "tp-nvlink": time_text(seconds(NVLINK)),
        "tp-infiniband": time_text(seconds(INFINIBAND)),
        "ce-vocabulary": f"{tokens_known:,}",
        "ce-ratio": f"{gathered / accounting.ring_all_reduce_bytes(3 * 4, n):,.0f}",
        "predict-tp-bytes": str(4 * 8 * 64),
    }


def pipelines() -> Numbers:
    """Counted on the reference's schedules."""
    p, m, goal = 4, 8, 0.05
    schedules = {
        "gpipe": [pipeline.gpipe(stage, p, m) for stage in range(p)],
        "onef": [pipeline.one_f_one_b(stage, p, m) for stage in range(p)],
    }
    found: Numbers = {}
    for name, schedule in schedules.items():
        peaks = pipeline.peak_in_flight(schedule)
        found |= {
            f"{name}-bubble": percent(pipeline.bubble_fraction(schedule)),
            f"{name}-peak-first": str(peaks[0]),
            f"{name}-peak-last": str(peaks[-1]),
        }
    stages, microbatches = 4, 6
    many, fraction = 8, 0.2  # of the whole; the ratio is to the rest
    neighbours = [1 + (0 < stage < stages - 1) for stage in range(stages)]
    return found | {
        "bubble-p": str(p),
        "bubble-m": str(m),
        "bubble-fraction": percent(pipeline.bubble_fraction(schedules["gpipe"])),
        "bubble-ratio": percent(accounting.bubble_ratio(p, m)),
        "bubble-goal": percent(goal),
        "bubble-microbatches": str(accounting.microbatches_for(p, goal)),
        "predict-pp-messages": str([microbatches * count for count in neighbours]),
        "predict-pp-bytes": str(2 * microbatches * (stages - 1) * 4 * 2 * 16),
        "q-bubble-stages": str(many),
        "q-bubble-fraction": percent(fraction),
        "q-bubble-microbatches": str(accounting.microbatches_for(many, fraction / (1 - fraction))),
    }


def scale() -> Numbers:
    """The chapter on arithmetic."""
    small, devices = 7e9, 8
    found: Numbers = {"zero-parameters": count(small), "zero-devices": str(devices)}
    for sharding in get_args(accounting.Sharding):
        found[f"state-{sharding}"] = size_text(accounting.state_bytes(small, sharding, devices))
        moved = accounting.data_parallel_bytes(small, sharding, devices)
        found[f"moved-{sharding}"] = size_text(moved)
    for key, fabric in (("nvlink", NVLINK), ("infiniband", INFINIBAND), ("ethernet", ETHERNET)):
        seconds = accounting.ring_all_reduce_seconds(
            2 * small, devices, fabric.bandwidth, fabric.latency
        )
        found[f"time-{key}"] = time_text(seconds)
    s, h, a, t = 8192, 8192, 64, 8
    kept = accounting.activation_bytes
    before, after = (kept(1, sequence, h, a) for sequence in (192, 384))  # a s / h: 1.5, then 3
    p = 8
    choice = accounting.choose_parallelism(
        accounting.state_bytes(70e9, "ddp", 1), DEVICE_BYTES, 1024, 8
    )
    flops = accounting.training_flops(70e9, 15e12)
    return found | {
        "compute-table": compute_table(),
        "moved-pipeline": size_text(2 * 2 * 1 * 8192 * 8192),
        "act-s": str(s),
        "act-h": str(h),
        "act-a": str(a),
        "act-plain": size_text(kept(1, s, h, a)),
        "act-tp": size_text(kept(1, s, h, a, t)),
        "act-sp": size_text(kept(1, s, h, a, t, True)),
        "act-selective": size_text(kept(1, s, h, a, t, True, "selective")),
        "act-full": size_text(kept(1, s, h, a, recomputation="full")),
        "acc-p": str(p),
        "acc-ratio-32": f"{accounting.bubble_ratio(p, 32):.2f}",
        "acc-ratio-16": f"{accounting.bubble_ratio(p, 16):.2f}",
        "acc-goal": "0.05",
        "acc-m": str(accounting.microbatches_for(p, 0.05)),
        "choice-70": " × ".join(map(str, choice)),
        "weights-7": size_text(2 * small),
        "weights-70": size_text(2 * 70e9),
        "q-training-times": times(accounting.state_bytes(70e9, "ddp", 1) / (2 * 70e9)),
        "q-act-before": f"{before / (192 * h):g}",
        "q-act-after": f"{after / (384 * h):g}",
        "q-act-times": times(after / before),
        "q-devices-90": f"{accounting.training_days(flops, 1, H100_FLOPS, MFU) / 90:,.0f}",
        "q-zero2-fit": fits(small, "zero2"),
        "q-zero3-fit": fits(small, "zero3"),
    }


def compute_table() -> list[list[str]]:
    """A row for each of some models: parameters, tokens, FLOPs, days."""
    rows = []
    for parameters, tokens in ((7e9, 2e12), (70e9, 1.4e12), (70e9, 15e12), (405e9, 15.6e12)):
        flops = accounting.training_flops(parameters, tokens)
        days = [accounting.training_days(flops, n, H100_FLOPS, MFU) for n in (1024, 16_384)]
        rows.append(
            [
                f"{count(parameters)}, {count(tokens)}",
                scientific(flops),
                *(f"{each:,.1f}" if each < 100 else f"{each:,.0f}" for each in days),
            ]
        )
    return rows


def fits(parameters: float, sharding: accounting.Sharding) -> str:
    """On how many devices of 16 GB the state fits."""
    for devices in range(1, 1000):
        if accounting.state_bytes(parameters, sharding, devices) <= 16e9:
            return str(devices)
    raise ValueError("on none")


def beyond() -> Numbers:
    """What is not graded."""
    p, m, v = 4, 8, 2
    llama = accounting.training_flops(405e9, 15.6e12)
    deepseek = accounting.training_flops(37e9, 14.8e12)
    years, devices = 5, 16_384
    hours = years * 365 * HOURS_OF_DAY / devices
    runs = (256, 36_000.0, 1024, 18_000.0)
    ddp_bytes, fsdp = (accounting.data_parallel_bytes(1, s, 8) for s in ("ddp", "zero3"))
    one_f_one_b = [pipeline.one_f_one_b(stage, p, m) for stage in range(p)]
    fewer = (1 + 1 / 2) / (1 + 1 / 1)  # steps at twice the critical batch size, by those at it
    return {
        "fsdp-ratio": f"{fsdp / ddp_bytes:g}",
        "idle-1f1b": percent(pipeline.bubble_fraction(one_f_one_b)),
        "idle-interleaved": percent((p - 1) / (v * m + p - 1)),
        "idle-zb": percent((p - 1) / (3 * m + p - 1)),
        "llama-flops": scientific(llama),
        "llama-days": f"{accounting.training_days(llama, 16_384, H100_FLOPS, MFU):.0f}",
        "deepseek-flops": scientific(deepseek),
        "llama-deepseek": f"{llama / deepseek:.0f}",
        "llama-interruption": f"{54 * HOURS_OF_DAY / 419:.0f}",
        "fail-years": str(years),
        "fail-devices": f"{devices:,}",
        "fail-hours": f"{hours:.1f}",
        "checkpoint-minutes": f"{math.sqrt(2 * 1 * hours * 60):.0f}",
        "crit-small-batch": str(runs[0]),
        "crit-small-steps": f"{runs[1]:,.0f}",
        "crit-large-batch": str(runs[2]),
        "crit-large-steps": f"{runs[3]:,.0f}",
        "crit-value": f"{accounting.critical_batch_size(*runs):.0f}",
        "q-crit-examples": times(2 * fewer),
        "q-crit-steps": f"{fewer:g}",
    }


# --- As text -------------------------------------------------------------------------------------


def count(number: float) -> str:
    """Such as "70 B"."""
    return _prefixed(number, {1e12: " T", 1e9: " B", 1e6: " M"})


def size_text(number: float) -> str:
    """Bytes, such as "1.12 TB"."""
    return _prefixed(
        number, digits=4, units={1e12: " TB", 1e9: " GB", 1e6: " MB", 1e3: " kB", 1: " B"}
    )


def rate_text(number: float) -> str:
    """Bytes per second, such as "375 GB/s"."""
    return size_text(number) + "/s"


def binary(number: int) -> str:
    """Bytes, such as "64 MiB"."""
    return _prefixed(number, {2**30: " GiB", 2**20: " MiB", 2**10: " KiB"})


def time_text(seconds: float) -> str:
    """Such as "1.5 ms"."""
    return _prefixed(seconds, {1: " s", 1e-3: " ms", 1e-6: " µs"})


def scientific(number: float) -> str:
    """Such as "6.3 × 10²⁴"."""
    mantissa, _, exponent = f"{number:.1e}".partition("e")
    raised = str(int(exponent)).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{mantissa} × 10{raised}"


def times(factor: float) -> str:
    """Such as "2.4 times"."""
    return f"{factor:.2g} times"


def percent(part: float) -> str:
    """Such as "27.3%"."""
    return f"{100 * part:.3g}%"


def _prefixed(number: float, units: Mapping[float, str], digits: int = 3) -> str:
    for unit, name in units.items():
        if number >= 0.9995 * unit:
            return f"{float(f'{number / unit:.{digits}g}'):g}{name}"
    raise ValueError(f"{number} is smaller than all units")
