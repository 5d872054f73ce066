"""What the hardware catalogue says of GPU generations and networks, where a description is silent."""

from functools import cache

from collectives.units import parse_latency
from simcomm.cluster.hardware_parts import find_link, parts

OLDEST_PORT = "InfiniBand EDR"  # of generations for which the catalogue names no port
USUAL_NVLINK = "NVLink 2"  # likewise: of those to which NCCL gives no figure of its own


def generation_year(generation: str) -> int:
    """Return the year of the first product of a GPU generation: a host is about as old.

    >>> generation_year("ampere")
    2020
    """
    return int(parts("generation")[generation]["year"].value)


def software_year(generation: str) -> int:
    """Return the year of the software that is usual on GPUs of a generation.

    >>> software_year("ampere")
    2023
    """
    return int(parts("generation")[generation]["software_year"].value)


def usual_nic(network: str, generation: str) -> float:
    """Return GB/s of one NIC, to tell how many a host has: of a network where all have the same, else by generation.

    >>> usual_nic("efa1", "ampere"), usual_nic("ib", "hopper")
    (12.5, 50.0)
    """
    if network in parts("network"):
        return float(parts("network")[network]["gbit_per_nic"].value) / 8
    figures = parts("generation")[generation]
    return find_link(figures["port"].value if "port" in figures else OLDEST_PORT).bandwidth / 1e9


@cache
def pcie_lane(generation: int) -> float:
    """Return the GB/s of a PCIe lane in one direction, after line coding.

    >>> round(16 * pcie_lane(4), 1)
    31.5
    """
    return find_link(f"PCIe {generation}.0").bandwidth / 1e9


@cache
def usable_share(link: str) -> float:
    """Return the share of a link's line rate that NCCL reckons with (``src/graph/topo.h``).

    >>> usable_share("NVLink 4")
    0.824
    """
    found = find_link(link)
    assert found.usable is not None, f"{link} has no usable rate"
    return found.usable / found.bandwidth


@cache
def usable_nvlink(generation: str) -> float:
    """Return the share of its NVLinks' line rate that NCCL reckons with on a GPU of a generation.

    >>> usable_nvlink("ampere")
    0.8
    """
    figures = parts("generation")[generation]
    return usable_share(figures["nvlink"].value if "nvlink" in figures else USUAL_NVLINK)


@cache
def plugin_latency(network: str, *, is_staged: bool = False) -> float:
    """Return the us that a network's plug-in tells NCCL of a message; ``is_staged``: without GPUDirect.

    >>> plugin_latency("efa3"), plugin_latency("efa1", is_staged=True), plugin_latency("ib")
    (35.0, 150.0, 0.0)
    """
    figures = parts("network").get(network, {})
    figure = figures.get("plugin_latency_staged" if is_staged else "plugin_latency", figures.get("plugin_latency"))
    return round(parse_latency(figure.value) * 1e6, 6) if figure else 0.0
