"""Scenarios on networks that are built on this machine: build them, and calibrate for them."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

import realcomm
from collectives.errors import InputError
from collectives.records.calibration import Calibration
from collectives.units import count, format_bandwidth, format_time
from realcomm.calibration.pair_calibration import calibrate_emulated
from realcomm.emulation.goodput import expected_goodput
from realcomm.emulation.network import EmulatedNetwork
from realcomm.emulation.plan import plan_network
from ringlab.session import Session
from ringlab.shared.failures import refusals_about
from ringlab.shared.progress import Progress
from scenarios import LoadedScenario
from simcomm.cluster.calibrated import as_emulated
from simcomm.cluster.cluster import Cluster
from simcomm.model.faults import NO_FAULTS

AnyScenario = TypeVar("AnyScenario", bound=LoadedScenario)


def on_emulated(scenario: AnyScenario) -> AnyScenario:
    """Return the scenario on its cluster as it is emulated. Raise InputError where it cannot be, or has faults."""
    if scenario.faults != NO_FAULTS:
        raise InputError(
            f"{scenario.path}: faults cannot be reproduced on an emulated network; remove [faults], "
            "or predict them with [what_if.faults]"
        )
    with refusals_about(f"{scenario.path}: cluster"):
        plan_network(scenario.cluster)
    return replace(scenario, cluster=as_emulated(scenario.cluster))


@contextmanager
def emulated(cluster: Cluster, progress: Progress) -> Iterator[EmulatedNetwork]:
    """Build a cluster's network within the context, and say what it is. Raise InputError and RunFailed."""
    with progress.task(f"building {cluster.title} on this machine and measuring its links"):
        network = realcomm.emulate(cluster).__enter__()
    with network:
        progress.note(describe(network))
        yield network


def as_built(scenario: AnyScenario, network: EmulatedNetwork) -> AnyScenario:
    """Return the scenario to predict: its links without latencies where the network has none."""
    if network.delays or not network.plan.is_delayed:
        return scenario
    return replace(scenario, cluster=without_latencies(scenario.cluster))


def without_latencies(cluster: Cluster) -> Cluster:
    """Return a cluster as it is emulated where the kernel cannot delay packets."""
    graph = cluster.graph.copy()
    for _, _, data in graph.edges(data=True):
        data["latency"] = 0.0
    return replace(cluster, graph=graph)


def describe(network: EmulatedNetwork) -> str:
    """Return what was built, how exact its links are, and what it leaves out."""
    plan = network.plan
    worst = max(abs(got / want - 1) for got, want in zip(network.goodputs, expected_goodputs(network), strict=True))
    built = f"{count(len(plan.hosts), 'host')}, {count(len(plan.directions) // 2, 'link')}, each within {worst:.2%}"
    if not plan.is_delayed or network.delays:
        return f"emulated: {built}"
    most = format_time(max(one.latency for one in plan.directions))
    return f"emulated: {built}; latencies of up to {most} are not: this kernel cannot delay packets (netem)"


def expected_goodputs(network: EmulatedNetwork) -> list[float]:
    """Return the bytes/s that TCP should get on each of the network's directions."""
    return [expected_goodput(one.bandwidth) for one in network.plan.directions]


def hosts_bandwidth(cluster: Cluster) -> float:
    """Return the bytes/s that the links of most hosts have."""
    plan = plan_network(cluster)
    return Counter(one.bandwidth for one in plan.directions if one.src in plan.hosts).most_common(1)[0][0]


def calibrate_for_emulation(scenario: LoadedScenario, session: Session) -> Calibration:
    """Measure two emulated hosts, and the trainings' computing on as many processes as the cluster has ranks.

    The pair has links of the bandwidth that most of the cluster's hosts have.
    """
    bandwidth, ranks = hosts_bandwidth(scenario.cluster), scenario.cluster.world_size
    trainings = [one for one in scenario.trainings if one.compute is None or one.gradient_sync is None]
    with session.progress.task(f"calibrating on two emulated hosts at {format_bandwidth(bandwidth)}") as tick:
        return calibrate_emulated(bandwidth, ranks, trainings, timeout=session.timeout_s, progress=tick)
