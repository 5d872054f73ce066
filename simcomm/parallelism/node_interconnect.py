"""``NodeInterconnect``: GPUs of machines of which bus bandwidths are known, as published nccl-tests show them."""

from dataclasses import dataclass
from functools import cached_property
from math import inf, log2

from simcomm.nccl.descriptions import describe_preset
from simcomm.nccl.settings import NcclSettings
from simcomm.parallelism.groups import Group
from simcomm.parallelism.interconnect import SHARES, Served
from simcomm.parallelism.shared_links import CONTENTION, StepLinks
from simcomm.scaling.descriptions import ScalingNode
from simcomm.scaling.parameters import read_parameters
from simcomm.scaling.step import server_seconds


@dataclass
class NodeInterconnect:
    """``gpus`` GPUs on each of ``nodes`` machines.

    A collective sends its bytes at the bus bandwidth, of which a training reaches the share that is fitted to published
    ones, and takes the fitted latency for each doubling of its ranks. Groups share a machine's NICs.
    """

    machine: ScalingNode
    gpus: int
    nodes: int = 1
    paths: int = 1  # x16 paths to the host, over which parameter servers send

    def __post_init__(self) -> None:
        self.node = self.gpus
        self.nic = self.machine.nic_GBps * 1e9
        self.kind: str = "network" if self.nodes > 1 else self.machine.kind

    @cached_property
    def links(self) -> StepLinks | None:
        """Those of a machine of the hardware catalogue; of others nothing is known."""
        if self.machine.machine is None:
            return None
        changes = {} if self.machine.kind == "nvlink" else {"link": "pcie", "p2p": self.machine.kind == "pcie"}
        system = describe_preset(self.machine.machine, self.nodes, self.gpus, **changes)
        return StepLinks(system, NcclSettings(), frozenset(CONTENTION), self._reached)

    def _reached(self, collective: str, group: Group) -> float:
        """Return the GB/s at which each GPU sends in a large collective that has all links to itself."""
        del collective
        return self._rate(group) / 1e9 if group.size > 1 else inf

    def _rate(self, group: Group) -> float:
        """Return the bus bandwidth of a group in bytes/s, as a training reaches it."""
        local = max(1, self.gpus // group.stride)
        inside, values = min(local, group.size), read_parameters()
        bandwidth = self.machine.bandwidth(inside) * 1e9
        if group.size <= local:
            return bandwidth * float(values[f"eff_{self.machine.kind}"])
        nic = self.nic * inside / self.gpus
        return (nic if inside == 1 else min(nic, bandwidth)) * float(values["eff_network"])

    def seconds(self, collective: str, nbytes: float, group: Group) -> float:
        """Return what a collective of a buffer of ``nbytes`` takes; of send_recv, a message."""
        if group.size == 1 or nbytes <= 0:
            return 0.0
        if collective == "send_recv":
            group = Group(2, group.stride)
        latency = float(read_parameters()["latency_us"]) / 1e6 * log2(group.size)
        return nbytes * SHARES[collective](group.size) / self._rate(group) + latency

    def serve(self, nbytes: float, largest: float, group: Group) -> Served:
        """Return what servers on the GPUs take, as in ``NcclInterconnect``."""
        local, staged = min(self.gpus, group.size), self.machine.kind == "host"
        seconds = server_seconds(
            read_parameters(), nbytes, largest, group.size, -(-group.size // self.gpus), staged=staged,
            busbw=self.machine.bandwidth(local) * 1e9, paths=self.paths, nic=self.nic or inf,
        )  # fmt: skip
        return Served(float(seconds), is_spread=not staged)
