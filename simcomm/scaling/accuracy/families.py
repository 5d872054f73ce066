"""Families of published points whose scaling is limited by the same thing, to see where errors are."""

from simcomm.scaling.descriptions import Series

INSIDE = {"nvlink": "NVLink", "pcie": "PCIe, peer to peer", "host": "PCIe, host memory"}


def family_of(series: Series, nodes: int) -> str:
    """Return the family of a point: how gradients are exchanged, and over what."""
    if series.job.sync == "none":
        return "no exchange"
    if series.job.sync == "ps":
        return "parameter server"
    if nodes > 1:
        return "network, 12.5 GB/s a node or less" if series.node.nic_GBps <= 12.5 else "network, faster"
    return INSIDE[series.node.kind]
