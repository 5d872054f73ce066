"""How long a simulation is expected to take on this machine, roughly, from how many messages it has."""

from random import Random

import numpy as np

from collectives.declaration import Algorithm
from collectives.schedule.relative import RelativeSchedule
from collectives.schedule.size_check import (
    MOST_PAIRS,
    MOST_TABLED,
    allowed,
    count_operations,
    estimate_operations,
    estimate_pairs,
    first_peers,
)
from collectives.schedule.symbolic_build import SMALL, AnySchedule, message_count, seems_cyclic, seems_on_grid
from collectives.schedule.table import StepTable
from collectives.step import Kind
from simcomm.cluster.cluster import Cluster
from simcomm.cluster.complete import complete_links
from simcomm.cluster.paths import find_shortest_paths
from simcomm.engine_choice import FEW
from simcomm.model.trouble import NO_TROUBLE, Trouble

# Messages a second on one core of a server of 2020: all_reduce/ring on 32 ranks by simpy, all_to_all/pairwise on 512
# ranks by the compiled engine, every message event by event; and seconds that any run of that engine takes.
SIMPY_RATE, COMPILED_RATE, LEAST_COMPILED_S = 15_000.0, 500_000.0, 0.02
SHORTCUT_RATE = 350_000_000.0  # messages a second in a shortcut: all_reduce/ring on 4,000 to 60,000 ranks
CYCLIC_S, ASKED_S = 1.2e-5, 3e-6  # an operation as it is written down: of one rank for all, of every rank
APART_S = 1e-6  # a message, for each that its rank posts with it, where no two end together: all_reduce/direct
SHARED_OUT_S = 8e-9  # a message of those that share links at a time, in each window of the approximate engine: likewise
RECORDED_S = 1e-6  # a message, where it is recorded to see who waited for whom
SEGMENT_RATE = 1_000_000.0  # segments of TCP a second in the compiled engine: rings on 8 and on 64 ranks, and around it
CHANGE_RATE = 65_000.0  # changes of links a second in either engine
SEARCH_RATE = 13_000_000.0  # nodes a second in searches for routes: one GPU of 2,048 machines after the other
FEW_ROUTED, RANKS_LOOKED_AT = 4_000, 4  # ranks whose routes are found within seconds; of more a few are looked at
AGAIN_S = 0.003  # a run that differs from the one before in its seed only
ALL_RUNS, MADE_SHARE = 20, 0.25  # repetitions that are always made, and the share of the others that usually is


def expected_seconds(
    schedule: AnySchedule,
    engine: str | None = None,
    trouble: Trouble = NO_TROUBLE,
    *,
    record: bool = False,
    segments: float = 0.0,
    changes: float = 0.0,
) -> float:
    """Return about how many seconds a run takes with the repetitions that its median usually needs.

    Where all ranks say the same and nothing changes meanwhile, a shortcut usually finds the times without simulating
    every message, which is quicker by far. Where none applies it takes longer, and longest where messages that share
    links are each late by chance. ``segments`` are of TCP, ``changes`` those of links, of one repetition.

    >>> from collectives import find_algorithm
    >>> from collectives.schedule.symbolic_build import build_compact
    >>> round(expected_seconds(build_compact(find_algorithm("all_reduce/ring"), 64), "simpy"), 2)
    0.54
    """
    messages = message_count(schedule)
    recorded = RECORDED_S * messages if record else 0.0
    runs = trouble.runs if trouble.runs <= ALL_RUNS else ALL_RUNS + MADE_SHARE * (trouble.runs - ALL_RUNS)
    recorded += changes / CHANGE_RATE
    if engine == "simpy" or (engine is None and (messages + segments) * trouble.runs <= FEW):
        return runs * ((messages + segments) / SIMPY_RATE + recorded)
    is_short = isinstance(schedule, RelativeSchedule) and not trouble.links_change and not trouble.fails_ranks
    at_once = _posted_at_once(schedule) if trouble.is_random and isinstance(schedule, RelativeSchedule) else 1
    if segments:
        simulated_s = messages / COMPILED_RATE + segments / SEGMENT_RATE
    elif at_once > 1:
        simulated_s = messages * max(1 / COMPILED_RATE, APART_S * at_once)
        if engine == "approximate":
            from simcomm.compiled.approximate import count_windows  # with it comes the engine

            together = SHARED_OUT_S * at_once * schedule.world_size
            simulated_s = min(simulated_s, messages / COMPILED_RATE + count_windows(schedule.steps) * together)
    elif is_short and not record:
        simulated_s = messages / schedule.world_size / COMPILED_RATE + messages / SHORTCUT_RATE
    else:
        simulated_s = messages / COMPILED_RATE
    return LEAST_COMPILED_S + (runs - 1) * AGAIN_S + runs * (simulated_s + recorded)


def sent_share(schedule: AnySchedule) -> float:
    """Return how many times the buffer's bytes all ranks send together.

    >>> from collectives import find_algorithm
    >>> from collectives.schedule.symbolic_build import build_compact
    >>> sent_share(build_compact(find_algorithm("all_reduce/ring"), 4))
    6.0
    """
    columns = schedule.columns if isinstance(schedule, StepTable) else schedule
    chunks = float(columns.count[columns.kind == Kind.SEND].sum())
    return (schedule.world_size if isinstance(schedule, RelativeSchedule) else 1) * chunks / schedule.chunks


def least_delay(schedule: AnySchedule, trouble: Trouble) -> float:
    """Return about the seconds that messages which come late by chance take at least: one of them in each step."""
    if trouble.messages is None:
        return 0.0
    columns = schedule.columns if isinstance(schedule, StepTable) else schedule
    return trouble.messages.mean * (int(columns.step.max(initial=-1)) + 1)


def count_link_changes(trouble: Trouble, seconds: float) -> float:
    """Return how many times links that flap change in so many seconds.

    >>> from simcomm.model.trouble import LinkTrouble
    >>> count_link_changes(Trouble(links=(LinkTrouble(("h0", "s0"), share=0, at=0, lasting=1, every=2),)), 100)
    100.0
    """
    return sum(2 * max(0.0, seconds - one.at) / one.every for one in trouble.links)


def _posted_at_once(schedule: RelativeSchedule) -> int:
    """Return the most messages that a channel of a rank sends in a step."""
    sends = schedule.kind == Kind.SEND
    steps = schedule.step[sends].astype(np.int64) * schedule.channels + schedule.channel[sends]
    return int(np.unique(steps, return_counts=True)[1].max(initial=0))


def expected_route_seconds(algorithm: Algorithm, cluster: Cluster, root: int = 0) -> float:
    """Return about how many seconds it takes to find the routes of very many ranks, from those of a few.

    It takes long where hosts have several links, as GPUs do, so that each is searched for. It is 0 of a user's program,
    which is asked for what it says only once.

    >>> import simcomm
    >>> from collectives import find_algorithm
    >>> expected_route_seconds(find_algorithm("all_reduce/ring"), simcomm.star(8, "10 Gbit/s", "5 us"))
    0.0
    """
    hosts, graph = cluster.hosts, cluster.graph
    if len(hosts) <= FEW_ROUTED or algorithm.source is not None or complete_links(graph) is not None:
        return 0.0
    doors = {next(iter(graph.pred[host])) if graph.in_degree(host) == 1 else host for host in set(hosts)}
    paths, drawn = find_shortest_paths(graph), Random(0).sample(range(len(hosts)), RANKS_LOOKED_AT)
    peers = {rank: first_peers(algorithm, len(hosts), root, rank) for rank in drawn}
    seen = [paths.searched((hosts[peer] for peer in some), hosts[rank]) for rank, some in peers.items()]
    return len(doors) * sum(seen) / RANKS_LOOKED_AT / SEARCH_RATE


def expected_build_seconds(algorithm: Algorithm, world_size: int, root: int = 0) -> float:
    """Return about how many seconds it takes at most to write down a schedule; 0 for one that is small or refused.

    >>> from collectives import find_algorithm
    >>> expected_build_seconds(find_algorithm("all_reduce/ring"), 64)
    0.0
    """
    if world_size <= SMALL:
        return 0.0
    most = allowed(MOST_PAIRS)
    if world_size**2 > most and estimate_pairs(algorithm, world_size, root) > most:
        return 0.0
    if seems_cyclic(algorithm) or seems_on_grid(algorithm):
        return CYCLIC_S * count_operations(algorithm, world_size, root)
    operations = estimate_operations(algorithm, world_size, root)  # 0 of one that fails, which is said when it is built
    return ASKED_S * operations if operations <= allowed(MOST_TABLED) else 0.0
