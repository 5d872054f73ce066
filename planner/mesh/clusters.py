"""The devices of a cluster as a mesh takes them: what one is, and what joins so many."""

from dataclasses import dataclass, field, replace
from typing import Protocol

from collectives.declaration import Algorithm
from collectives.errors import InputError
from collectives.units import parse_bandwidth
from planner.hosts import Host, host_of_system
from planner.mesh.interconnect import Interconnect, NcclInterconnect, SimulatedInterconnect
from planner.mesh.job import ANY_DEVICE, MeshDevice
from planner.mesh.terms import CORES
from simcomm.cluster.cluster import Cluster
from simcomm.cluster.hardware import find_part, machine_entries, memory_bytes, parts
from simcomm.nccl.catalogue import gpus_of_host
from simcomm.nccl.clusters import NcclCluster


class MeshCluster(Protocol):
    """A cluster whose devices are taken for meshes of any number."""

    @property
    def gpu(self) -> str | None:
        """The GPU's name in the hardware catalogue, with its memory where a preset says it; None for other devices."""

    @property
    def device(self) -> MeshDevice:
        """One of the devices; its host's cores are also those of GPUs that are not used."""

    @property
    def host(self) -> Host | None:
        """One of the hosts; None for other devices than GPUs."""

    def join(self, count: int) -> Interconnect:
        """Return what joins so many of the devices. Raise InputError for a number that it cannot have."""


def mesh_cluster(cluster: Cluster, algorithm: Algorithm | None = None) -> MeshCluster:
    """Return a cluster as a mesh takes it; ``algorithm`` is of all_reduce on a simulated network."""
    if isinstance(cluster, NcclCluster):
        return GpuMeshCluster(cluster)
    return SimulatedMeshCluster(cluster, algorithm)


@dataclass(frozen=True)
class SimulatedMeshCluster:
    """Devices of which nothing is known, on a simulated network."""

    cluster: Cluster
    algorithm: Algorithm | None = None
    gpu: None = field(default=None, init=False)
    device: MeshDevice = field(default=ANY_DEVICE, init=False)
    host: None = field(default=None, init=False)

    def join(self, count: int) -> Interconnect:
        """Return the network. Raise InputError where it has fewer hosts."""
        if count > self.cluster.world_size:
            raise InputError(
                f"{self.cluster.title} has {self.cluster.world_size} devices; for {count} give a larger one, as "
                f"--set cluster.hosts={count}"
            )
        return SimulatedInterconnect(self.cluster, self.algorithm)


@dataclass(frozen=True)
class GpuMeshCluster:
    """GPUs of a described system, joined by NCCL's model."""

    cluster: NcclCluster

    @property
    def gpu(self) -> str | None:
        system = self.cluster.system
        name = str(machine_entries()[system.preset]["gpu"]) if system.preset in machine_entries() else system.gpu.name
        return name if name in parts("GPU") else None

    @property
    def device(self) -> MeshDevice:
        system, gpu = self.cluster.system, self.gpu
        cores = CORES * (gpus_of_host(system.preset) if system.preset in machine_entries() else system.gpus)
        if gpu is None:
            return MeshDevice(cores=cores)
        figures = find_part("GPU", gpu)
        bandwidth = parse_bandwidth(figures["memory_bandwidth"].value) if "memory_bandwidth" in figures else 0.0
        return MeshDevice(gpu, memory_bytes(gpu), bandwidth, cores)

    @property
    def host(self) -> Host:
        return host_of_system(self.cluster.system, self.gpu, self.cluster.settings)

    def join(self, count: int) -> Interconnect:
        """Return as many hosts of the system as that takes. Raise InputError where they cannot be."""
        system = self.cluster.system
        nodes = -(-count // system.gpus)
        if nodes > 1 and count % system.gpus:
            raise InputError(f"{count} devices do not fill hosts of {system.gpus}; give a multiple of {system.gpus}")
        if nodes > system.nodes and (system.net is None or not system.nic):
            raise InputError(
                f"{self.cluster.title} has {system.ranks} devices and no network is known; for {count} set "
                "cluster.nodes"
            )
        part = replace(system, nodes=nodes, gpus=min(count, system.gpus))
        return NcclInterconnect(part, self.cluster.settings)
