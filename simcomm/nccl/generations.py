"""What the hardware catalogue says of GPU generations and networks, where a description is silent."""

from simcomm.cluster.hardware_parts import find_link, parts

OLDEST_PORT = "InfiniBand EDR"  # of generations for which the catalogue names no port


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
