"""What a message and a collective cost on a modelled fabric.

The alpha-beta model: a message of s bytes takes alpha + s / beta seconds, where alpha is the
latency and beta the bandwidth (Hockney 1994, The communication challenge for MPP; Thakur,
Rabenseifner, Gropp 2005, Optimization of Collective Communication Operations in MPICH).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

COLLECTIVES = frozenset(
    {
        *("all_reduce", "reduce_scatter", "all_gather", "all_to_all"),
        *("broadcast", "reduce", "scatter", "gather", "barrier"),
    }
)


@dataclass(frozen=True)
class Fabric:
    """A network in which every rank sends one message and receives one at a time.

    Attributes:
        name: for people.
        latency: seconds that a message of no bytes takes (alpha).
        bandwidth: bytes per second, the peak in each direction (beta).
        algorithm: how built-in collectives are priced, "ring" or "tree"; see `collective`.

    Raises:
        ValueError: a latency that is negative or not finite; a bandwidth that is not positive, or
            not finite; another algorithm.
    """

    name: str
    latency: float
    bandwidth: float
    algorithm: Literal["ring", "tree"] = "ring"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.latency) and self.latency >= 0):
            raise ValueError(f"latency is {self.latency} s; it must be finite and not negative")
        if not (math.isfinite(self.bandwidth) and self.bandwidth > 0):
            raise ValueError(f"bandwidth is {self.bandwidth} B/s; it must be finite and positive")
        if self.algorithm not in ("ring", "tree"):
            raise ValueError(f'algorithm is {self.algorithm!r}; it must be "ring" or "tree"')

    def message(self, nbytes: float) -> float:
        """Seconds that one message takes: alpha + nbytes / beta."""
        return self.latency + nbytes / self.bandwidth

    def collective(self, name: str, ranks: int, nbytes: float) -> float:
        """Seconds that a built-in collective takes among `ranks` ranks that start together.

        With n ranks, S = `nbytes`, L = ceil(log2 n), a = latency and b = bandwidth:

            collective                            ring                    tree
            all_reduce                            2 (n-1) (a + S/(n b))   2 L (a + S/b)
            reduce_scatter, all_gather              (n-1) (a + S/(n b))   L a + (n-1)/n S/b
            scatter, gather                         (n-1) (a + S/(n b))   L a + (n-1)/n S/b
            broadcast, reduce                   (k+n-2) (a + S/(k b))     L (a + S/b)
            all_to_all                              (n-1) (a + S/(n b))   L a + sum of c_i S/(n b)
            barrier                               L a                     L a

        ring: rings, pairwise exchange for all_to_all, one message after another for scatter and
        gather, and for broadcast and reduce a chain through which k pieces follow one another,
        with the best k. tree: binomial trees, for reduce_scatter and all_gather recursive halving
        and doubling, for all_to_all Bruck's, where c_i is how many of 0..n-1 have bit i set. The
        barrier is a dissemination. One rank alone takes no time.

        Args:
            name: as in torch.distributed, such as "all_reduce".
            ranks: how many ranks take part.
            nbytes: the size of the full tensor: the larger one of the send and receive buffers of
                a rank, and the root's for scatter and gather.

        Raises:
            ValueError: no such collective.
        """
        n, rounds, part = ranks, (ranks - 1).bit_length(), nbytes / ranks
        match name, self.algorithm:
            case ("barrier", _):
                return rounds * self.latency
            case ("all_reduce", "ring"):
                return 2 * (n - 1) * self.message(part)
            case ("all_reduce", _):
                return 2 * rounds * self.message(nbytes)
            case ("broadcast" | "reduce", "ring"):
                return self._chain(n, nbytes)
            case ("broadcast" | "reduce", _):
                return rounds * self.message(nbytes)
            case ("reduce_scatter" | "all_gather" | "scatter" | "gather" | "all_to_all", "ring"):
                return (n - 1) * self.message(part)
            case ("reduce_scatter" | "all_gather" | "scatter" | "gather", _):
                return rounds * self.latency + (n - 1) * part / self.bandwidth
            case ("all_to_all", _):
                blocks = (sum(rank >> bit & 1 for rank in range(n)) for bit in range(rounds))
                return sum(self.message(part * count) for count in blocks)
        raise ValueError(f"{name!r} is no collective; these are: {', '.join(sorted(COLLECTIVES))}")

    def _chain(self, n: int, nbytes: float) -> float:
        """A chain of n ranks that pass the tensor on in equal pieces, as many as is best."""
        if n == 1:
            return 0.0
        least = max(nbytes, 1)  # pieces of one byte
        ideal = (
            math.sqrt((n - 2) * nbytes / self.bandwidth / self.latency) if self.latency else least
        )
        fewer = min(max(math.floor(ideal), 1), least)
        return min(
            (pieces + n - 2) * self.message(nbytes / pieces) for pieces in (fewer, fewer + 1)
        )


NVLINK = Fabric("NVLink 4", 3e-6, 450e9)
"""Within a node of H100 GPUs: 18 links of 25 GB/s in each direction (NVIDIA H100 data sheet: 900
GB/s, both directions together). Latency, order of magnitude: 3.4 us in NCCL's own model of a ring
(`hwLat`, Simple protocol, in src/graph/tuning.cc), as for PCIe and InfiniBand below."""

PCIE = Fabric("PCIe 5.0 x16", 6e-6, 63e9)
"""16 lanes of 32 GT/s, of which the 128b/130b encoding leaves 63 GB/s in each direction (PCI
Express Base Specification 5.0). Latency, order of magnitude: NCCL's model has 5.7 us."""

INFINIBAND = Fabric("InfiniBand NDR", 1e-5, 50e9)
"""One port of 400 Gb/s (NVIDIA ConnectX-7 data sheet). Latency, order of magnitude: between the
memories of two GPUs by way of NCCL, whose model has 9.6 us; between two hosts it is near 1 us."""

ETHERNET = Fabric("100 Gb Ethernet", 3e-5, 12.5e9)
"""One port of 100 Gb/s (IEEE 802.3). Latency, order of magnitude: TCP through the kernel takes some
tens of microseconds."""

ETHERNET_10 = Fabric("10 Gb Ethernet", 3e-5, 1.25e9)
"""One port of 10 Gb/s (IEEE 802.3); latency as for ETHERNET."""
