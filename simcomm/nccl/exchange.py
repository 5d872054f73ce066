"""What NCCL's tuner does not choose: messages between pairs of ranks, and MPI on processors.

NCCL's send and receive use the NICs near to the GPU (``ncclTopoGetLocalNet`` in ``src/graph/search.cc``):
of P NICs and p GPUs a node, GPU g has NIC g P // p where there are fewer NICs than GPUs, and P / p of them where there
are more. What all flows of the busiest NIC carry in one direction, over its rate, is what the network takes; the other
direction carries at most as much. Inside a node bytes cross NVLink, or the GPU's PCIe slot, which all its bytes share.
"""

from math import ceil, log2

import numpy as np

from collectives.costs.bounds import bus_factor
from simcomm.nccl.channels import aged, between_hop, between_rate, hop_rate, inside_hop, least, ramp_class
from simcomm.nccl.communicator import Communicator
from simcomm.nccl.parameters import Floats, Parameters
from simcomm.nccl.topology import HopGroup, exchange_rate

PAIRWISE = ("all_to_all", "gather", "scatter", "send_recv", "hypercube")  # made of sends and receives


def nic_share(comm: Communicator, collective: str) -> float:
    """Return what the busiest NIC of a node carries in one direction, as a share of the buffer.

    Of send_recv, where each rank sends the buffer to the next one, a single GPU of a node sends to another node. The
    root of gather and scatter has all other nodes' parts on its own NICs.

    >>> from simcomm.nccl.communicator import make_communicator
    >>> from simcomm.nccl.descriptions import describe_system
    >>> from simcomm.nccl.settings import NcclSettings
    >>> line = {"nodes": 2, "gpus": 8, "gpu": "A100 SXM", "net": "ib", "nic": 50}
    >>> comm = make_communicator(describe_system("two NICs", line), NcclSettings())
    >>> nic_share(comm, "all_to_all"), nic_share(comm, "send_recv")
    (2.0, 1.0)
    """
    if comm.network is None:
        return 0.0
    remote = (comm.ranks - comm.local) / comm.ranks
    if collective == "send_recv":
        flows, each = 1.0, 1.0
    elif collective in ("gather", "scatter"):
        flows, each = 1.0, remote
    else:
        flows, each = float(comm.local), remote
    return each * busiest(comm, flows)


def busiest(comm: Communicator, flows: float) -> float:
    """Return how many of the flows of a node's first GPUs, one each, meet on a NIC; below 1 where one has several."""
    nics = comm.network.ports if comm.network else 1
    return float(min(flows, ceil(comm.local / nics))) if nics <= comm.local else comm.local / nics


def slot_share(comm: Communicator, collective: str) -> float:
    """Return what a GPU sends or receives inside its node, as a share of the buffer; over PCIe all of its bytes."""
    if collective == "send_recv":
        return 1.0
    others = comm.ranks - 1 if not comm.is_nvlink else comm.local - 1
    return others / comm.ranks


def exchange_times(comm: Communicator, collective: str, sizes: Floats, values: Parameters) -> Floats:
    """Return the microseconds of messages between pairs, at sizes in bytes as nccl-tests counts them."""
    load = sizes / 1000 * _seconds_a_gigabyte(comm, collective, values)
    peers = {"send_recv": 1, "hypercube": ceil(log2(comm.ranks))}.get(collective, comm.ranks - 1)
    hop = between_hop(comm, "ll", values) if comm.nodes > 1 else inside_hop(comm, "ll", values)
    wait = values["base.all_to_all"] * aged(comm, values) + hop + values["peer"] * (peers - 1)
    if comm.nodes > 1 and peers > 1:
        wait += values["peer.net"] * min(peers, comm.ranks - comm.local)
    times: Floats = wait + load + values[f"ramp.{ramp_class(comm)}"] * np.sqrt(wait * load)
    return times


def _seconds_a_gigabyte(comm: Communicator, collective: str, values: Parameters) -> float:
    """Return what each byte of the buffer takes on the busiest link, in seconds a GB."""
    across = 0.0
    if comm.network is not None:
        nic = between_rate(comm, values) / comm.network.ports
        across = nic_share(comm, collective) / nic
    if comm.local == 1:
        return across
    kind, rate = exchange_rate(comm.host) if comm.local <= comm.host.gpus else (comm.hops[0].kind, comm.hops[0].rate)
    slowest: float = np.maximum(across, slot_share(comm, collective) / hop_rate(comm, HopGroup(kind, 1, rate), values))
    return slowest


LONG_MESSAGE = 2048  # bytes from which on MPICH reduces and scatters, then gathers: twice the stages
FULL_HOST = 32  # processes from which on they share the memory's bandwidth


def mpi_microseconds(comm: Communicator, collective: str, sizes: Floats, values: Parameters) -> Floats:
    """Return the microseconds of a collective of MPI ranks on processors, at sizes in bytes."""
    kind = comm.network.kind if comm.network else ""
    latency = values["mpi.base"] + values["mpi.rank"] * log2(comm.local)
    rates = []
    if comm.local > 1:
        rates.append(values["mpi.copy"] if comm.local < FULL_HOST else values["mpi.full"])
    if comm.network is not None:
        latency += values["tcp.hop" if kind == "tcp" else "mpi.net"] * log2(comm.nodes)
        if comm.harness == "mlsl":
            latency += values["mpi.mlsl"] * log2(comm.nodes)
        nic = comm.network.nic * values["mpi.nic"] * comm.nodes ** -values["mpi.hosts"]
        rates.append(least([nic, values["tcp.socket"]]) if kind == "tcp" else nic)
    stages = 1 + np.clip(np.log2(sizes / LONG_MESSAGE) / 2, 0, 1)
    load = sizes * bus_factor(collective, comm.ranks) / 1000 / least(rates)
    wait = latency * stages
    times: Floats = wait + load + values["mpi.ramp"] * np.sqrt(wait * load)
    return times
