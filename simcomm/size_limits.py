"""What is refused for its size before it is written down, where it is certain that no shortcut applies."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain, islice

from collectives.declaration import Algorithm
from collectives.errors import TooLarge
from collectives.request import Request
from collectives.schedule.call import make_call
from collectives.schedule.size_check import FEWER_RANKS, allowed, estimate_operations, says_more, ways_out
from collectives.step import Kind
from simcomm.cluster.cluster import Cluster
from simcomm.cluster.complete import complete_links
from simcomm.schedules import compact_schedule

FEW_RANKS = 4_000  # what up to so many say is written down in a moment
FEW_SIMPY_RANKS, MOST_SIMPY = 256, 500_000  # messages: a ring's of 500 ranks; half a gigabyte, half a minute
FAR_MORE = 2  # times as many as will do: what looking at a few ranks is enough for
COUNTED = 20_000  # operations of a rank that are counted to say about how many
STEPS_LOOKED_AT = 4  # of each channel, for one that sends


def check_one_by_one(request: Request, cluster: Cluster) -> None:
    """Raise TooLarge where every message would have to be simulated one by one, and there are too many for that.

    That is certain where chunks are unequal, so that ranks are not alike, and several channels of a rank send over the
    one link of its host, so that messages share links.
    """
    algorithm, world_size = request.algorithm, cluster.world_size
    if not (algorithm.has_program and algorithm.is_decided) or world_size <= FEW_RANKS:
        return
    from simcomm.compiled.planning.engine_input import MOST_MESSAGES  # what has few messages does without this engine

    call = make_call(algorithm, world_size, request.root)
    is_even = request.elements % call.chunks == 0
    if is_even or request.elements < call.chunks or not _sends_side_by_side(algorithm, world_size, request.root):
        return
    if _has_several_links(cluster):
        return
    most = allowed(MOST_MESSAGES)
    messages = estimate_operations(algorithm, world_size, request.root) // 2
    if messages > most:
        raise TooLarge(
            f"{call.describe()}: about {messages:,} messages or more would have to be simulated one by one, as the "
            f"{call.chunks:,} chunks of {request.elements:,} elements are unequal and a rank's channels share a link; "
            f"up to {most:,} will do; {FEWER_RANKS}, or for a size that falls into equal chunks"
        )


def check_simpy(algorithm: Algorithm, world_size: int, root: int = 0, steps: int = 1) -> None:
    """Raise TooLarge for more messages than the simpy engine, which keeps what happens to each, has memory for."""
    if world_size <= FEW_SIMPY_RANKS:
        return
    most = allowed(MOST_SIMPY)
    number, words, ways = _count_messages(algorithm, world_size, root, steps, most)
    if number > most:
        raise TooLarge(
            f"{algorithm.full_name}, world size {world_size}: its {words} messages are too many for "
            "the simpy engine, which simulates them one by one in Python; "
            f"up to {most:,} will do; leave the engine out, or {ways}"
        )


def check_recorded(algorithm: Algorithm, world_size: int, root: int = 0, steps: int = 1) -> None:
    """Raise TooLarge for more messages than can be looked at one by one, as in a picture or a trace.

    What is far too much is refused by what a few ranks say.

    >>> from collectives import find_algorithm
    >>> check_recorded(find_algorithm("all_reduce/ring"), 64)
    """
    most = _most_recorded()
    number, words, ways = _count_messages(algorithm, world_size, root, steps, most)
    if number > most:
        raise TooLarge(
            f"{algorithm.full_name}, world size {world_size}: its {words} messages{' in all steps' * (steps > 1)} "
            f"are too many to be looked at one by one; up to {most:,} will do; {ways}"
        )


def check_candidates_recorded(request: Request, candidates: Sequence[Algorithm], world_size: int) -> None:
    """Raise TooLarge where each algorithm that the model may choose has far too many messages to be looked at."""
    most = _most_recorded()
    if candidates and all(says_more(one, world_size, request.root, 2 * FAR_MORE * most) for one in candidates):
        raise TooLarge(
            f"{request.algorithm.full_name}, world size {world_size}: whatever the model chooses has more than "
            f"{FAR_MORE * most:,} messages, which are too many to be looked at one by one; up to {most:,} will do; "
            f"name an algorithm in place of auto, or {FEWER_RANKS}"
        )


def _most_recorded() -> int:
    from simcomm.compiled.planning.engine_input import MOST_RECORDED  # what has few messages does without this engine

    return allowed(MOST_RECORDED)


def _count_messages(algorithm: Algorithm, world_size: int, root: int, times: int, most: int) -> tuple[int, str, str]:
    """Return how many messages a collective has that is carried out so many times, the words for it, and ways out.

    Where a few ranks show that they are far more than ``most``, it is about how many; a user's are always counted.
    """
    if algorithm.source is None and says_more(algorithm, world_size, root, 2 * FAR_MORE * most // times):
        number = times * estimate_operations(algorithm, world_size, root, COUNTED) // 2
        return number, f"about {number:,} or more", FEWER_RANKS
    number = times * compact_schedule(algorithm, world_size, root).messages
    return number, f"{number:,}", ways_out(number, most)


@lru_cache(maxsize=64)
def _sends_side_by_side(algorithm: Algorithm, world_size: int, root: int) -> bool:
    """Return whether several channels of the middle rank send in their first steps."""
    channels = make_call(algorithm, world_size, root).run_alone(world_size // 2)
    first = (chain.from_iterable(islice(steps, STEPS_LOOKED_AT)) for steps in channels)
    return sum(any(op.kind == Kind.SEND for op in ops) for ops in first) >= 2


def _has_several_links(cluster: Cluster) -> bool:
    """Return whether the node of some rank has several links to send over."""
    graph = cluster.graph
    return complete_links(graph) is not None or any(graph.out_degree(host) > 1 for host in cluster.hosts)
