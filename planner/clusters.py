"""Convert clusters to the planner's hosts. Collective times come from the NCCL model or a simulated network."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from collectives.call import make_call
from collectives.catalogue import find_algorithm
from collectives.declaration import Algorithm
from collectives.errors import InputError
from planner.hosts import CORES, Group, Host, Network, host_of_system
from simcomm.cluster.cluster import Cluster
from simcomm.cluster.hardware import machine_entries, parts
from simcomm.nccl.catalogue import gpus_of_host
from simcomm.nccl.clusters import NcclCluster
from simcomm.nccl.measured.calibration import predict_calibrated
from simcomm.nccl.predict import NOT_VALIDATED
from simcomm.simulate import run

ALGORITHMS = {
    "all_reduce": "all_reduce/ring", "all_gather": "all_gather/ring", "reduce_scatter": "reduce_scatter/ring",
    "all_to_all": "all_to_all/direct", "broadcast": "broadcast/binomial", "reduce": "reduce/binomial",
    "send_recv": "broadcast/naive", "serve": "all_reduce/naive",
}  # fmt: skip
INSIDE = {"nvswitch": "NVSwitch", "mesh": "NVLink mesh", "bridge": "NVLink pairs", "xgmi": "xGMI"}
SMALL = 1024  # bytes


def simulate_network(cluster: Cluster, algorithm: Algorithm | None = None) -> Network:
    """Return a function that simulates a collective on a cluster and returns its time in seconds.

    The function takes the name of a collective, its size in bytes and a ``Group`` of ranks that begins at rank 0.
    ``algorithm`` is the all_reduce algorithm. Default: ring.

    >>> from simcomm import star
    >>> network = simulate_network(star(4, bandwidth="10 Gbit/s", latency="5 us"))
    >>> network("serve", 1 << 20, Group(4)) > 1.5 * network("all_reduce", 1 << 20, Group(4))
    True
    """
    algorithms = {"all_reduce": algorithm} if algorithm is not None else {}

    @cache
    def simulate(collective: str, nbytes: int, group: Group) -> float:
        hosts = cluster.hosts[: group.size * group.stride : group.stride]
        call = make_call(algorithms.get(collective) or find_algorithm(ALGORITHMS[collective]), group.size, nbytes)
        return run(call, replace(cluster, hosts=hosts), record=False).elapsed

    def network(collective: str, nbytes: float, group: Group) -> float:
        if group.size == 1 or nbytes < 1:
            return 0.0
        part = Group(2, group.stride) if collective == "send_recv" else group
        return simulate(collective, max(4, round(nbytes / 4) * 4), part)

    return network


def host_of_cluster(cluster: Cluster, algorithm: Algorithm | None = None) -> Host:
    """Convert a cluster to a host. ``algorithm`` is the all_reduce algorithm on a simulated network. Default: ring.

    A machine from the hardware catalog keeps all of its CPU cores, even if the cluster uses only some of its GPUs.
    """
    if not isinstance(cluster, NcclCluster):
        gpus = max(1, cluster.local_ranks)
        return Host(cluster.title, None, gpus, "", CORES * gpus, 0.0, network=simulate_network(cluster, algorithm))
    system, preset = cluster.system, cluster.system.preset
    name = str(machine_entries()[preset]["gpu"]) if preset in machine_entries() else system.gpu.name
    host = host_of_system(system, name if name in parts("GPU") else None, cluster.settings)
    return replace(host, cores=CORES * gpus_of_host(preset)) if preset in machine_entries() else host


def describe_network(cluster: Cluster) -> Iterator[str]:
    """Yield sentences about the links and assumptions of a GPU cluster. Yield nothing for a simulated network."""
    host = host_of_cluster(cluster)
    system = host.system
    if system is None or not isinstance(cluster, NcclCluster):
        return
    inside = INSIDE.get(system.link, "PCIe GPU to GPU" if system.p2p else "PCIe through host memory")
    links = [f"{inside} inside a host"] * (system.gpus > 1)
    links += [f"{system.net} at {system.nic:g} GB/s between hosts"] * (system.nodes > 1)
    notes = predict_calibrated(system, "all_reduce", SMALL, settings=cluster.settings).notes
    known = [f"Network: {', '.join(links)}"] if links else []
    yield "; ".join([*known, *cluster.assumed, *(note for note in notes if not note.startswith(NOT_VALIDATED))]) + "."
    if host.is_unseen and system.ranks > 1:
        yield "No published multi-GPU run used such a machine with PCIe or TCP, so the intervals are wider."


def check_devices(cluster: Cluster, count: int) -> None:
    """Raise InputError if the cluster cannot provide ``count`` devices."""
    if not isinstance(cluster, NcclCluster):
        if count > cluster.world_size:
            raise InputError(
                f"{cluster.title} has only {cluster.world_size} devices, not {count}; use a larger cluster, for "
                f"example --set cluster.hosts={count}"
            )
        return
    system = cluster.system
    nodes = -(-count // system.gpus)
    if nodes > 1 and count % system.gpus:
        raise InputError(f"{count} devices do not fill hosts of {system.gpus} GPUs; use a multiple of {system.gpus}")
    if nodes > system.nodes and (system.net is None or not system.nic):
        raise InputError(
            f"{cluster.title} has {system.ranks} devices and no known network; for {count} devices, set cluster.nodes"
        )
