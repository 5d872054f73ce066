"""Emulates a scenario's network on this machine, and calibrates for it."""

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
    """Return the scenario with its cluster emulated. Raise InputError if it has faults or cannot be emulated."""
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
    """Emulate a cluster's network during the block, and report how accurate its links are.

    Raise InputError if this machine cannot emulate the cluster or its traffic, and RunFailed if building it fails.
    """
    with progress.task(f"building {cluster.title} on this machine and measuring its links"):
        network = realcomm.emulate(cluster).__enter__()
    with network:
        progress.note(describe(network))
        yield network


def as_built(scenario: AnyScenario, network: EmulatedNetwork) -> AnyScenario:
    """Return the scenario as emulated: without latencies if this machine's kernel cannot delay packets."""
    if network.delays or not network.plan.is_delayed:
        return scenario
    return replace(scenario, cluster=without_latencies(scenario.cluster))


def without_latencies(cluster: Cluster) -> Cluster:
    graph = cluster.graph.copy()
    for _, _, data in graph.edges(data=True):
        data["latency"] = 0.0
    return replace(cluster, graph=graph)


def describe(network: EmulatedNetwork) -> str:
    plan = network.plan
    expected = [expected_goodput(link.bandwidth) for link in plan.directions]
    worst = max(abs(got / want - 1) for got, want in zip(network.goodputs, expected, strict=True))
    built = f"{count(len(plan.hosts), 'host')}, {count(len(plan.directions) // 2, 'link')}, each within {worst:.2%}"
    if not plan.is_delayed or network.delays:
        return f"emulated: {built}"
    most = format_time(max(link.latency for link in plan.directions))
    return f"emulated: {built}; without latencies (up to {most}), because this kernel cannot delay packets (netem)"


def hosts_bandwidth(cluster: Cluster) -> float:
    """Return the most frequent bandwidth of the hosts' links, in bytes/s."""
    plan = plan_network(cluster)
    return Counter(link.bandwidth for link in plan.directions if link.src in plan.hosts).most_common(1)[0][0]


def calibrate_for_emulation(scenario: LoadedScenario, session: Session) -> Calibration:
    """Calibrate on two emulated hosts, and time training on as many processes as the cluster has ranks.

    The link between the two hosts has the most frequent bandwidth of the cluster's hosts.
    """
    bandwidth, ranks = hosts_bandwidth(scenario.cluster), scenario.cluster.world_size
    trainings = [each for each in scenario.trainings if each.compute is None or each.gradient_sync is None]
    with session.progress.task(f"calibrating on two emulated hosts at {format_bandwidth(bandwidth)}") as tick:
        return calibrate_emulated(bandwidth, ranks, trainings, timeout=session.timeout_s, progress=tick)
