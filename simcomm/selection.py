"""Choose the fastest algorithm for a size, a number of ranks and a cluster, according to the performance model."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from collectives.call import CollectiveCall, make_call
from collectives.catalogue import find_algorithm, library
from collectives.checks import check_cluster, check_sequence
from collectives.declaration import Algorithm, auto
from collectives.errors import InputError, TooLarge, Undefined
from collectives.records.calibration import Calibration
from collectives.spec import find_spec
from simcomm.cluster.calibrated import check_used
from simcomm.cluster.cluster import Cluster
from simcomm.performance_models.estimator import Estimator
from simcomm.performance_models.performance_model import performance_model

SLICES = (2, 8, 32)  # numbers of slices to try for pipelined algorithms
SAME = 1e-9  # times within this relative difference count as equal; then fewer operations win


class AlgorithmChoice(NamedTuple):
    """The result of a choice: the fastest algorithm and its predicted time in seconds."""

    algorithm: Algorithm
    seconds: float


def library_candidates(collective: str, cluster: Cluster | None = None) -> Iterator[Algorithm]:
    """Yield the library's algorithms for a collective. Pipelined algorithms appear with several numbers of slices.

    If the cluster is a torus, algorithms with its dimensions are included. Raise InputError for an unknown collective.

    >>> [algorithm.label for algorithm in library_candidates("scatter")]
    ['naive', 'binomial']
    """
    find_spec(collective)
    dimensions = () if cluster is None else cluster.graph.graph.get("dimensions", ())
    for algorithm in library().values():
        if algorithm.spec.name == collective:
            if "slices" in algorithm.parameter_names:
                yield from (algorithm.with_parameters(slices=slices) for slices in SLICES)
            else:
                yield algorithm
            if dimensions and "columns" in algorithm.parameter_names:
                yield algorithm.with_parameters(**dict(zip(("columns", "rows"), dimensions[:0:-1], strict=False)))


def choose(
    collective: str,
    cluster: Cluster,
    nbytes: int | str,
    *,
    dtype: str = "float32",
    op: str | None = None,
    root: int | None = None,
    calibration: Calibration | None = None,
    among: Iterable[str | Algorithm] | None = None,
) -> AlgorithmChoice:
    """Choose the algorithm with the lowest predicted time. Default of ``among``: all algorithms in the library.

    Algorithms that are not defined for this number of ranks are skipped. If several are equally fast, the one with the
    fewest operations on rank 0 wins. Times from closed forms assume equal chunks. Raise InputError if no algorithm is
    left.

    >>> import simcomm
    >>> choose("broadcast", simcomm.star(8, "10 Gbit/s", "5 us"), 64).algorithm.label
    'binomial'
    """
    check_cluster(cluster, Cluster)
    check_used(calibration, [cluster])
    call = make_call(auto(collective), cluster.world_size, nbytes, dtype=dtype, op=op, root=root)
    named = None
    if among is not None:
        named = [find_algorithm(name, collective) for name in check_sequence("among", among, of="algorithms")]
    estimator = performance_model(cluster, calibration).estimator(call)
    best = _fastest(estimator, named)
    return AlgorithmChoice(best.algorithm, best.least if best.is_exact else estimator.seconds(best.algorithm))


def _fastest(estimator: Estimator, among: Iterable[Algorithm] | None) -> "_Contender":
    """Return the fastest contender. Bounds are tightened only until it is certain which contender is fastest.

    Raise TooLarge if all contenders are too large to simulate.
    """
    contenders, too_large = _contenders(among, estimator), None
    while contenders:
        limit = min(each.most for each in contenders) * (1 + SAME)
        may_win = [each for each in contenders if each.least <= limit]
        uncertain = [each for each in may_win if not each.is_exact]
        if not uncertain or len(may_win) == 1:
            return min(may_win, key=lambda each: _effort(each.algorithm, estimator)) if may_win[1:] else may_win[0]
        first = min(uncertain, key=lambda each: each.least)
        contenders.remove(first)
        try:
            contenders.append(_with_more_known(first, estimator))
        except TooLarge as error:
            too_large = too_large or error
    assert too_large is not None
    raise too_large


@dataclass(frozen=True)
class _Contender:
    """An algorithm with a lower bound (``least``) and an upper bound (``most``) on its time in seconds."""

    algorithm: Algorithm
    least: float
    most: float
    knows_loads: bool = False  # whether ``least`` includes the load of links

    @property
    def is_exact(self) -> bool:
        return self.least == self.most


def _contenders(among: Iterable[Algorithm] | None, estimator: Estimator) -> list[_Contender]:
    contenders, name = list[_Contender](), estimator.call.spec.name
    for algorithm in library_candidates(name, estimator.cluster) if among is None else among:
        try:
            seconds = estimator.closed_form(algorithm)
            bounds = estimator.bracket(algorithm) if seconds is None else (seconds, seconds)
        except Undefined:
            continue
        contenders.append(_Contender(algorithm, *bounds))
    if not contenders:
        raise InputError(f"{name}: no candidate supports {estimator.world_size} ranks; pass other algorithms")
    return contenders


def _with_more_known(contender: _Contender, estimator: Estimator) -> _Contender:
    """Return the contender with tighter bounds. The first call uses the load of links, and the second simulates."""
    if not contender.knows_loads:
        least = min(max(contender.least, estimator.link_load_bound(contender.algorithm)), contender.most)
        return replace(contender, least=least, knows_loads=True)
    seconds = estimator.simulate(contender.algorithm)
    return replace(contender, least=seconds, most=seconds)


def _effort(algorithm: Algorithm, estimator: Estimator) -> tuple[int, int, str]:
    """Return a sort key for equally fast algorithms: operations on rank 0, number of parameters, label."""
    programs = algorithm.channels(0, estimator.world_size, estimator.call.root)
    operations = sum(len(step) for program in programs for step in program)
    return operations, len(algorithm.parameter_names), algorithm.label


def resolve_auto(
    call: CollectiveCall,
    cluster: Cluster,
    calibration: Calibration | None = None,
    among: Iterable[Algorithm] | None = None,
) -> CollectiveCall:
    """Return the call with ``auto`` replaced by the model's choice, labeled for example ``auto (ring)``.

    ``among`` lists the candidates. Default: all algorithms in the library. Calls with other algorithms are returned
    unchanged. Raise InputError if no candidate is defined for this number of ranks.

    >>> import simcomm
    >>> call = CollectiveCall(auto("broadcast"), elements=16)
    >>> resolve_auto(call, simcomm.star(8, "10 Gbit/s", "5 us")).algorithm.label
    'auto (binomial)'
    """

    def decide() -> Algorithm:
        return _fastest(performance_model(cluster, calibration).estimator(call), among).algorithm

    chosen = call.algorithm.decide(decide)
    return call if chosen is call.algorithm else call.with_algorithm(chosen, cluster.world_size)
