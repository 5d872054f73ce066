"""Seconds between which an algorithm takes, whatever the length of its buffers, on a symmetric network.

Chunk sizes of a buffer differ by one element at most, so each message lies between one of a buffer rounded down to
equal chunks and one of a buffer rounded up. Where a rank sends to one rank at a time and receives from one at a time,
no link is ever shared by messages of two pairs, so that every time is a maximum of sums of the messages' own times: it
lies between the closed forms of the two buffers. Elsewhere each bound has a reason of its own, at its function.

The network is that of ``closed_forms``. What a bracket says is exact where both bounds are one.
"""

from collections.abc import Callable
from math import inf
from typing import NamedTuple

from collectives.costs.closed_forms import UPPER_BOUNDS, CostModel, closed_form, least_seconds
from collectives.declaration import Algorithm

# Algorithms in which every rank sends to one rank at a time and receives from one at a time.
ONE_AT_A_TIME = frozenset(
    f"{collective}/{name}"
    for collective, names in {
        "broadcast": ("naive", "binomial", "chain"),
        "reduce": ("naive", "binomial", "chain"),
        "all_reduce": (
            "naive", "binomial", "chain", "ring", "unchunked_ring", "recursive_doubling", "halving_doubling",
        ),
        "scatter": ("naive", "binomial"),
        "gather": ("naive", "binomial"),
        "all_gather": ("naive", "ring", "bruck", "recursive_doubling"),
        "reduce_scatter": ("naive", "ring", "recursive_halving"),
        "all_to_all": ("pairwise", "bruck"),
        "barrier": ("naive", "binomial", "dissemination"),
    }.items()
    for name in names
)  # fmt: skip
DIRECT = frozenset(
    f"{collective}/direct" for collective in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
)
BIDIRECTIONAL = "all_reduce/bidirectional_ring"
UNKNOWN = (0.0, inf)
INNER = ("node", "rail", "gather")  # parameters of a hierarchical algorithm that name algorithms inside it


class Bracket(NamedTuple):
    """Seconds that no run goes below, and seconds that none goes beyond."""

    least: float
    most: float


def bracket(algorithm: Algorithm, model: CostModel, elements: int) -> Bracket:
    """Return the bracket of a library algorithm on a buffer of so many elements; 0 and infinity where none is known.

    ``model`` says how long the buffer is in bytes.

    >>> from collectives import find_algorithm
    >>> network = CostModel(p=4, nbytes=40.0, alpha=1.0, beta=1.0, gamma=0.0)
    >>> bracket(find_algorithm("all_reduce/ring"), network, elements=10)  # chunks of two and of three elements
    Bracket(least=54.0, most=78.0)
    """
    chunks = algorithm.chunks(model.p)
    if not algorithm.is_builtin or elements < chunks or model.p == 1:
        return Bracket(*UNKNOWN)
    itemsize, down = model.nbytes / elements, elements - elements % chunks
    lower = model._replace(nbytes=down * itemsize)
    upper = lower if down == elements else model._replace(nbytes=(down + chunks) * itemsize)
    least, most = _bounds(algorithm)(algorithm, lower, upper)
    return Bracket(least, most)


def least_on_faster(algorithm: Algorithm, model: CostModel, elements: int) -> float:
    """Return seconds that no run goes below on a network where no message is faster than on that of ``model``.

    They count messages that follow each other and nothing that they may share; 0 where none are known.
    """
    return bracket(algorithm, model, elements).least if _is_one_at_a_time(algorithm) else 0.0


def _bounds(algorithm: Algorithm) -> Callable[[Algorithm, CostModel, CostModel], tuple[float, float]]:
    """Return the function that finds the bracket of an algorithm from models of the shorter and the longer buffer."""
    name = f"{algorithm.spec.name}/{algorithm.name}"
    if _is_one_at_a_time(algorithm):
        return _between_closed_forms
    if name in DIRECT:
        return _between_closed_forms_of_direct
    if name == BIDIRECTIONAL:
        return _bidirectional_ring
    return _two_trees if name in UPPER_BOUNDS else _unknown


def _is_one_at_a_time(algorithm: Algorithm) -> bool:
    """Return whether every rank sends to one rank at a time and receives from one at a time."""
    name = f"{algorithm.spec.name}/{algorithm.name}"
    if name == "all_reduce/hierarchical":
        return all(algorithm.parameters.get(key) in (None, "ring") for key in INNER)
    return name in ONE_AT_A_TIME


def _between_closed_forms(algorithm: Algorithm, lower: CostModel, upper: CostModel) -> tuple[float, float]:
    """Return the closed forms of the shorter and of the longer buffer."""
    least, most = closed_form(algorithm, lower), closed_form(algorithm, upper)
    return (0.0, inf) if least is None or most is None else (least, most)


def _between_closed_forms_of_direct(algorithm: Algorithm, lower: CostModel, upper: CostModel) -> tuple[float, float]:
    """Return the closed forms, which bound what sends all messages of a step at once.

    All that a rank receives in a step crosses its link, after one latency, and no rank begins its second step before.
    A link never has more than p - 1 messages of one step, of which a max-min fair share is at least its capacity
    over that number; and once all ranks have ended the first step, nothing of it is left on the links.
    """
    return _between_closed_forms(algorithm, lower, upper)


def _two_trees(algorithm: Algorithm, lower: CostModel, upper: CostModel) -> tuple[float, float]:
    """Return the bounds of two trees: no link has more than two messages at once, each with half of it at least."""
    most = closed_form(algorithm, upper)
    return least_seconds(algorithm, lower), inf if most is None else most


def _bidirectional_ring(algorithm: Algorithm, lower: CostModel, upper: CostModel) -> tuple[float, float]:
    """Return the bounds of two rings, one each way, that share every link.

    No link has more than two messages at once, so each has half of a link at least, as in the closed form.

    All that a rank sends crosses its link, which besides is idle while both rings wait: for their first messages, and
    between steps for as long as they are in step. If all messages of a step are posted within d seconds, alone on its
    links none moves bytes for longer than d, so that the first of them ends no earlier than 2 m - d after its latency,
    where m is what the shorter message takes alone, and the last no later than d + 2 M, M for the longer one. Those of
    the next step are posted within 2 d + 2 (M - m) and what reducing differs by; and between the steps the link is idle
    for a latency and the reducing, less that. This holds until the messages of two steps could meet.
    """
    steps, share = 2 * (lower.p - 1), 1 / (2 * lower.p)
    seconds, spread = lower.alpha + 2 * steps * share * lower.nbytes * lower.beta, 0.0
    differs = share * (upper.nbytes - lower.nbytes)
    for step in range(steps - 1):
        reducing = step < lower.p - 1
        spread = 2 * spread + differs * (2 * lower.beta + (lower.gamma if reducing else 0.0))
        idle = lower.alpha + (lower.work(share) if reducing else 0.0) - spread
        if idle <= 0:
            break
        seconds += idle
    most = closed_form(algorithm, upper)
    return seconds, inf if most is None else most


def _unknown(algorithm: Algorithm, lower: CostModel, upper: CostModel) -> tuple[float, float]:
    return UNKNOWN
