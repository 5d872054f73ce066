"""Families of cases whose scaling is limited by the same thing, to see where errors are and how far to trust."""

from simcomm.scaling.cases import Case

SLOW, FAST = "network, up to 12.5 GB/s a node", "network, faster"
SERVER, NO_EXCHANGE, HOST = "parameter server", "no exchange", "PCIe, host memory"
INSIDE = {"nvlink": "NVLink", "pcie": "PCIe, peer to peer", "host": HOST}


def family_of(case: Case) -> str:
    """Return how gradients are exchanged, or over what."""
    if case.job.sync == "none":
        return NO_EXCHANGE
    if case.job.sync == "ps":
        return SERVER
    if case.nodes > 1:
        return SLOW if case.node.nic_GBps <= 12.5 else FAST
    return INSIDE[case.node.kind]
