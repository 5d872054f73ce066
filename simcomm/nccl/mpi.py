"""MPI on processors: all_reduce by recursive doubling and rings over shared memory and NICs, in closed form."""

from math import log2

import numpy as np

from collectives.costs.bounds import bus_factor
from simcomm.nccl.channels import Floats
from simcomm.nccl.communicator import Communicator
from simcomm.nccl.parameters import Parameters

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
        rates.append(min(nic, values["tcp.socket"]) if kind == "tcp" else nic)
    stages = 1 + np.clip(np.log2(sizes / LONG_MESSAGE) / 2, 0, 1)
    load = sizes * bus_factor(collective, comm.ranks) / 1000 / min(rates)
    wait = latency * stages
    times: Floats = wait + load + values["mpi.ramp"] * np.sqrt(wait * load)
    return times
