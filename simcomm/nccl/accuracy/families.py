"""Families of described systems that are predicted by the same physics, to see where errors are."""

from simcomm.nccl.communicator import make_communicator
from simcomm.nccl.descriptions import System
from simcomm.nccl.settings import NcclSettings

BETWEEN = {"ib": "InfiniBand, RoCE", "efa1": "EFA", "efa2": "EFA", "efa3": "EFA"}
INSIDE = {"nvswitch": "NVSwitch", "mesh": "NVLink mesh, bridge", "bridge": "NVLink mesh, bridge", "xgmi": "xGMI"}


def family_of(system: System) -> str:
    """Return the family of a system: what joins its hosts, or what joins the GPUs of its only one.

    >>> from simcomm.nccl.descriptions import describe_system
    >>> family_of(describe_system("mine", {"nodes": 1, "gpus": 4, "gpu": "RTX 4090"}))
    'PCIe, host memory'
    """
    if system.gpu.generation == "cpu":
        return "MPI on CPUs"
    if system.nodes > 1:
        return BETWEEN.get(system.net or "", "other networks")
    if system.link == "pcie":
        is_p2p = any(hop.kind.startswith("p2p") for hop in make_communicator(system, NcclSettings()).hops)
        return "PCIe, peer to peer" if is_p2p else "PCIe, host memory"
    return INSIDE[system.link]
