"""The tables of NCCL's tuner, as its source has them: what NCCL believes of GPU generations, not what is true.

``src/graph/tuning.cc`` of NVIDIA/nccl, by tag v2.7.8-1, v2.9.6-1, v2.12.12-1, v2.18.5-1, v2.21.5-1, v2.26.2-1, v2.30;
the name that each table has there stands beside it. Link rates are in the hardware catalogue.

There is one departure: for trees with Simple, v2.18.5-1 has 4, 6 and 14 us (NVLink, PCI, network), and v2.12.12-1 and
v2.21.5-1 before and after it 28 (so has issue 1334). The switch points of systems of 2023 fit 28, which is taken here.
"""

from collections.abc import Mapping
from dataclasses import dataclass

CHANNELS = {"volta": 6, "turing": 6, "ampere": 12, "hopper": 16, "blackwell": 16}  # found on NVLink, before doubling

TREE_CORRECTION = {  # treeCorrectionFactor, by log2(bytes / 64), of a tree's bandwidth for all_reduce
    "ll": [1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1],
    "ll128": [1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1],
    "simple": [.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9],
}  # fmt: skip
# Caps in GB/s by GPU generation; columns: one node, two nodes, more. llMaxBws; of a channel perChMaxRingLL128Bws,
# perChMaxTreeLL128Bws, perChMaxTreeBws and perChMaxNVLSTreeBws.
LL_CAP = {"volta": (39, 39, 20.4), "ampere": (87.7, 22.5, 19), "hopper": (141, 45, 35), "blackwell": (282, 90, 70)}
RING_LL128_CAP = {"volta": (20,) * 3, "ampere": (20,) * 3, "hopper": (36.7,) * 3, "blackwell": (40,) * 3}
TREE_LL128_CAP = {"volta": (20,) * 3, "ampere": (20,) * 3, "hopper": (36.7, 36.7, 29), "blackwell": (55.6, 31.67, 20)}
TREE_CAP = {
    "volta": (26.5, 18.5, 10), "ampere": (24, 23.6, 17.8), "hopper": (38.7, 41.4, 36), "blackwell": (70, 42.8, 24),
}  # fmt: skip
NVLS_TREE_CAP = {
    "volta": (26.5, 18.5, 10), "ampere": (24, 23.6, 17.8), "hopper": (0, 57.7, 45.5), "blackwell": (0, 96, 80),
}  # fmt: skip
NVLS_EFFICIENCY = {"hopper": 0.85, "blackwell": 0.74}  # nvlsEfficiency

Figures = tuple[float, float, float]  # of LL, LL128, Simple


@dataclass(frozen=True)
class Latencies:
    """Latencies in us that a range of versions assumes: baseLat and hwLat."""

    base_tree: Figures
    base_ring: Figures
    ring: Mapping[str, Figures]  # by NCCL's classes of hardware
    tree: Mapping[str, Figures]


_OLD_BASE = ((4.4, 4.4, 0), (3.6, 10, 8.4))
_BASE = ((6.8, 14, 0), (6.6, 14, 8.4))
_OLD_RING: dict[str, Figures] = {"nvlink": (0.47, 1.9, 3.4), "pci": (1.0, 2.5, 5.7), "net": (2.7, 4.0, 9.6)}
_RING: dict[str, Figures] = {"nvlink": (0.6, 1.9, 3.4), "pci": (1.0, 2.5, 5.7), "net": (2.7, 4.0, 14)}
_TREE: dict[str, Figures] = {"nvlink": (0.6, 1.25, 28), "pci": (1.0, 1.9, 28), "net": (5.0, 8.5, 28)}
_FAST_TREE: dict[str, Figures] = {"nvlink": (0.6, 1.25, 4), "pci": (1.0, 1.9, 4), "net": (5.0, 8.5, 14)}
_ERAS = (  # until which version
    ((2, 10), Latencies(*_OLD_BASE, _OLD_RING, {**_TREE, "nvlink": (0.52, 1.2, 28), "net": (5.0, 8.5, 50)})),
    ((2, 13), Latencies(*_OLD_BASE, _OLD_RING, _TREE)),
    ((2, 18), Latencies(*_BASE, {**_OLD_RING, "nvlink": (0.6, 1.9, 3.4)}, _TREE)),
    ((2, 22), Latencies(*_BASE, _RING, _TREE)),
    ((2, 26), Latencies(*_BASE, _RING, _FAST_TREE)),
    ((99, 0), Latencies((6.8, 14, 8.4), _BASE[1], _RING, _FAST_TREE)),
)
COUNTS_PLUGIN = (2, 14)  # from which version NCCL adds it


def latencies(version: tuple[int, int]) -> Latencies:
    """Return the latencies that a version assumes.

    >>> latencies((2, 9)).base_ring, latencies((2, 26)).base_ring
    ((3.6, 10, 8.4), (6.6, 14, 8.4))
    """
    return next(figures for until, figures in _ERAS if version < until)
