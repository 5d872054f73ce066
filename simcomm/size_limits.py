"""What is refused for its size before it is written down, where it is certain that no shortcut applies."""

from itertools import chain, islice

from collectives.declaration import Algorithm
from collectives.errors import TooLarge
from collectives.request import Request
from collectives.schedule.call import make_call
from collectives.schedule.size_check import allowed, estimate_operations, ways_out
from collectives.schedule.symbolic_build import message_count
from collectives.step import Kind
from simcomm.cluster.cluster import Cluster
from simcomm.cluster.complete import complete_links
from simcomm.schedules import compact_schedule

FEW_RANKS = 4_000  # what up to so many say is written down in a moment
FEW_SIMPY_RANKS, MOST_SIMPY = 256, 500_000  # messages: a ring's of 500 ranks; half a gigabyte, half a minute
STEPS_LOOKED_AT = 4  # of each channel, for one that sends


def check_one_by_one(request: Request, cluster: Cluster) -> None:
    """Raise TooLarge where every message would have to be simulated one by one, and there are too many for that.

    That is certain where chunks are unequal, so that ranks are not alike, and several channels of a rank send over the
    one link of its host, so that messages share links.
    """
    algorithm, world_size = request.algorithm, cluster.world_size
    if algorithm.is_auto or algorithm.is_nccl or world_size <= FEW_RANKS:
        return
    from simcomm.compiled.planning.engine_input import MOST_MESSAGES  # what has few messages does without this engine

    call = make_call(algorithm, world_size, request.root)
    is_even = request.elements % call.chunks == 0
    if is_even or request.elements < call.chunks or _has_several_links(cluster):
        return
    channels = [chain.from_iterable(islice(steps, STEPS_LOOKED_AT)) for steps in call.run(world_size // 2)]
    if sum(any(op.kind == Kind.SEND for op in first) for first in channels) < 2:
        return
    most = allowed(MOST_MESSAGES)
    messages = estimate_operations(algorithm, world_size, request.root) // 2
    if messages > most:
        raise TooLarge(
            f"{call.describe()}: about {messages:,} messages or more would have to be simulated one by one, as the "
            f"{call.chunks:,} chunks of {request.elements:,} elements are unequal and a rank's channels share a link; "
            f"up to {most:,} will do; ask for fewer ranks (--set cluster.hosts=N), or for a size that falls "
            "into equal chunks"
        )


def check_simpy(algorithm: Algorithm, world_size: int, root: int = 0, steps: int = 1) -> None:
    """Raise TooLarge for more messages than the simpy engine, which keeps what happens to each, has memory for."""
    if world_size <= FEW_SIMPY_RANKS:
        return
    most = allowed(MOST_SIMPY)
    estimate = steps * estimate_operations(algorithm, world_size, root) // 2
    is_estimated = estimate > 2 * most and algorithm.source is None  # what all say need not be written down for that
    messages = estimate if is_estimated else steps * message_count(compact_schedule(algorithm, world_size, root))
    if messages > most:
        about = "about " if is_estimated else ""
        raise TooLarge(
            f"{algorithm.full_name}, world size {world_size}: its {about}{messages:,} messages are too many for "
            "the simpy engine, which simulates them one by one in Python; "
            f"up to {most:,} will do; leave the engine out, or " + ways_out(messages, most)
        )


def _has_several_links(cluster: Cluster) -> bool:
    """Return whether the node of some rank has several links to send over."""
    graph = cluster.graph
    return complete_links(graph) is not None or any(graph.out_degree(host) > 1 for host in cluster.hosts)
