"""Compute lower and upper bounds on an algorithm's time on a symmetric network, for any buffer length.

The closed forms require equal chunks, but real chunk sizes differ by at most one element. Therefore, a message takes at
least as long as in a buffer that is rounded down to equal chunks, and at most as long as in one that is rounded up.

If each rank sends to one rank and receives from one rank at a time, no two messages share a link. Then the time lies
between the closed forms of the two rounded buffers. The docstrings of the functions below justify the bounds for other
algorithms.

``closed_forms`` describes the network. If both bounds are equal, they are the exact time.
"""

from collections.abc import Callable
from math import inf
from typing import NamedTuple

from collectives.costs.closed_forms import FORMS, UPPER_BOUNDS, CostModel, closed_form, least_seconds
from collectives.declaration import Algorithm

SEVERAL_AT_ONCE = ("bidirectional_ring", "direct", "double_tree", "hierarchical", "torus")
# algorithms in which every rank sends to one rank at a time and receives from one at a time
ONE_AT_A_TIME = frozenset(name for name in FORMS if name.partition("/")[2] not in SEVERAL_AT_ONCE)
DIRECT = frozenset(
    f"{collective}/direct" for collective in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
)
BIDIRECTIONAL = "all_reduce/bidirectional_ring"
UNKNOWN = (0.0, inf)
INNER = ("node", "rail", "gather")  # parameters of a hierarchical algorithm that name algorithms inside it


class Bracket(NamedTuple):
    """A lower and an upper bound on the time of an algorithm, in seconds."""

    least: float
    most: float


def bracket(algorithm: Algorithm, model: CostModel, elements: int) -> Bracket:
    """Return the bounds on the time of a library algorithm, or (0, infinity) if no bounds are known.

    The buffer has ``elements`` elements and ``model.nbytes`` bytes.

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
    """Return a lower bound in seconds for any network on which each message takes at least as long as in ``model``.

    The bound adds the times of consecutive messages, as if no messages shared links. It is 0 if no bound is known.
    """
    return bracket(algorithm, model, elements).least if _is_one_at_a_time(algorithm) else 0.0


def _bounds(algorithm: Algorithm) -> Callable[[Algorithm, CostModel, CostModel], tuple[float, float]]:
    name = f"{algorithm.spec.name}/{algorithm.name}"
    if _is_one_at_a_time(algorithm) or name in DIRECT:
        return _between_closed_forms
    if name == BIDIRECTIONAL:
        return _bidirectional_ring
    return _two_trees if name in UPPER_BOUNDS else lambda *_: UNKNOWN


def _is_one_at_a_time(algorithm: Algorithm) -> bool:
    name = f"{algorithm.spec.name}/{algorithm.name}"
    if name == "all_reduce/hierarchical":
        return all(algorithm.parameters.get(key) in (None, "ring") for key in INNER)
    return name in ONE_AT_A_TIME


def _between_closed_forms(algorithm: Algorithm, lower: CostModel, upper: CostModel) -> tuple[float, float]:
    """Return the closed-form times of the rounded-down and the rounded-up buffer as lower and upper bounds.

    They also hold for the *direct* algorithms, in which messages share links. Lower bound: all data that a rank
    receives in a step crosses its link after one latency, and no rank begins its second step earlier. Upper bound: a
    link never has more than p - 1 messages of one step, so a max-min fair share is at least 1 / (p - 1) of the
    capacity. When all ranks have finished the first step, none of its messages remain.
    """
    least, most = closed_form(algorithm, lower), closed_form(algorithm, upper)
    return UNKNOWN if least is None or most is None else (least, most)


def _two_trees(algorithm: Algorithm, lower: CostModel, upper: CostModel) -> tuple[float, float]:
    most = closed_form(algorithm, upper)
    return least_seconds(algorithm, lower), inf if most is None else most


def _bidirectional_ring(algorithm: Algorithm, lower: CostModel, upper: CostModel) -> tuple[float, float]:
    """Return bounds for two rings in opposite directions that share every link.

    Upper bound: a link has at most two messages at once, so each gets at least half of its bandwidth.

    Lower bound: the time to send all data of a rank, plus the time in which its link is idle because both rings wait.
    Suppose that all messages of a step are posted within d seconds, and that the shorter and the longer message alone
    take m and M seconds. A message is alone on its links for at most d seconds. Therefore, messages end between 2 m - d
    and d + 2 M after their latency, and the next step is posted within 2 d + 2 (M - m), plus the difference in
    reduction times. Before the next step, the link is idle for a latency and a reduction, minus this spread. The sum
    stops at the first step without idle time.
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
