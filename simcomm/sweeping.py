"""Many predictions in one call: algorithms on clusters at sizes, with shared work done once.

A file can cache the predictions: one JSON line each, found by the key of its question.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from itertools import groupby, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from collectives.call import CollectiveCall, make_call
from collectives.catalogue import find_algorithm
from collectives.checks import check_cluster, check_path, check_several, is_finite_number
from collectives.declaration import Algorithm
from collectives.errors import InputError
from collectives.input_files import FileBytes, parse_json
from collectives.output_files import append_text, key_of, read_kept_lines
from collectives.quoting import quote
from collectives.records.calibration import Calibration
from collectives.records.environment import installed_version
from collectives.units import as_bytes
from simcomm import compiled
from simcomm.cluster.calibrated import check_used, resolve_transport
from simcomm.cluster.cluster import Cluster
from simcomm.model.faults import NO_FAULTS, Faults, check_faults
from simcomm.parallel import in_any_order
from simcomm.performance_models.network_model import simulator_of
from simcomm.schedules import compact_schedule

Question = dict[str, Any]


def describe_questions(
    clusters: Sequence[Cluster], calls: Sequence[CollectiveCall], each: int, faults: Faults
) -> list[Question]:
    """Return the cached description of every call; ``each`` calls belong to one cluster.

    The key is a hash of everything that affects the answer: the cluster's nodes and links, the program, the faults, and
    the version of this package. Your own routing policy is identified by its name only.
    """
    world = {"version": installed_version("ringlab"), "faults": asdict(faults)}
    digests = [key_of({**world, "cluster": describe_cluster(cluster)}) for cluster in clusters]
    programs: dict[int, str] = {}
    questions = list[Question]()
    for number, call in enumerate(calls):
        algorithm = call.algorithm
        if id(algorithm) not in programs:
            programs[id(algorithm)] = f"{algorithm.full_name} {_text_of(algorithm)}"
        arguments = {"bytes": call.nbytes, "dtype": call.dtype, "op": call.op, "root": call.root}
        key = key_of([digests[number // each], programs[id(algorithm)], arguments])
        cluster = clusters[number // each]
        names = {"algorithm": algorithm.full_name, "cluster": cluster.title, "ranks": cluster.world_size}
        questions.append({"key": key, **names, **arguments})
    return questions


def _text_of(algorithm: Algorithm) -> str:
    """Return the file of a user's program. Raise InputError if changes to the program would go unnoticed."""
    if algorithm.is_builtin:
        return ""
    try:
        return Path(algorithm.file or ".").read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"kept: the program of {algorithm.full_name} is not in a file, so later changes would go unnoticed; "
            "save it in a file and pass FILE.py:NAME"
        ) from error


def describe_cluster(cluster: Cluster) -> dict[str, object]:
    """Return everything that predictions on a cluster depend on, as JSON content."""
    graph = cluster.graph
    return {
        "nodes": [[node, sorted(data.items())] for node, data in graph.nodes(data=True)],
        "links": [[src, dst, sorted(data.items())] for src, dst, data in graph.edges(data=True)],
        "hosts": cluster.hosts,
        "sharing": cluster.sharing,
        "transport": asdict(cluster.transport) if cluster.transport is not None else None,
        "routing": _policy_name(cluster.routing),
    }


def _policy_name(routing: Any) -> object:
    if isinstance(routing, partial):
        keywords = {key: _policy_name(value) for key, value in routing.keywords.items()}
        return [_policy_name(routing.func), [_policy_name(value) for value in routing.args], keywords]
    return f"{routing.__module__}.{routing.__qualname__}" if callable(routing) else routing


class SweepFile:
    """The cache file of a sweep's predictions."""

    def __init__(self, path: Path | str, questions: Sequence[Question]) -> None:
        """Read the file if it exists. Raise InputError with file and line if it is not a sweep's."""
        self.path, self._questions = check_path("kept", path), questions
        known = self._read()
        self.known = [known.get(question["key"], math.nan) for question in questions]

    def add(self, places: Sequence[int], seconds: Sequence[float]) -> None:
        """Append the predictions of the questions at these indices."""
        lines = (
            json.dumps({**self._questions[place], "seconds": None if math.isinf(time) else time})
            for place, time in zip(places, seconds, strict=True)
        )
        append_text(self.path, "".join(f"{line}\n" for line in lines))

    def _read(self) -> dict[str, float]:
        return dict(read_kept_lines(self.path, self._line, FileBytes.SWEEP))

    def _line(self, line: str, number: int) -> tuple[str, float]:
        try:
            read = parse_json(line)
        except (ValueError, RecursionError):
            read = None
        fields: Mapping[str, Any] = read if isinstance(read, Mapping) else {}
        key, seconds = fields.get("key"), fields.get("seconds", "")
        is_time = seconds is None or (is_finite_number(seconds) and seconds >= 0)
        if not isinstance(key, str) or not is_time:
            raise InputError(
                f"{self.path}, line {number}: not a prediction of a sweep: {quote(line)}; pass another file"
            )
        return key, math.inf if seconds is None else float(seconds)


BLOCK_CLUSTERS = 16  # clusters per task

Report = Callable[[int, int], object]  # called with the numbers of finished and of all predictions
Several = str | Algorithm | Iterable[str | Algorithm]


class SweepRow(NamedTuple):
    """One prediction of a sweep."""

    cluster: str  # its title
    world_size: int
    algorithm: str
    nbytes: int  # of each rank's buffer, rounded to the algorithm's chunks
    seconds: float  # NaN if interrupted before


@dataclass(frozen=True, repr=False)
class Sweep:
    """Predicted times: ``seconds[c, a, s]`` for cluster c, algorithm a and size s; nan if not done."""

    clusters: tuple[Cluster, ...]
    algorithms: tuple[Algorithm, ...]
    sizes: tuple[int, ...]  # bytes
    seconds: npt.NDArray[np.float64]
    nbytes: npt.NDArray[np.int64] = field(repr=False)  # of the buffers, in whole elements and chunks; same shape
    interrupted: bool = False

    def __repr__(self) -> str:
        counts = f"{len(self.clusters)} clusters, {len(self.algorithms)} algorithms, {len(self.sizes)} sizes"
        return f"<Sweep of {counts}{': interrupted' if self.interrupted else ''}>"

    def rows(self) -> Iterator[SweepRow]:
        """Yield every prediction by cluster, then algorithm.

        >>> import simcomm
        >>> next(sweep("broadcast/binomial", simcomm.star(4, "8 Gbit/s", "1 us"), [1000]).rows()).nbytes
        1000
        """
        for c, cluster in enumerate(self.clusters):
            for a, algorithm in enumerate(self.algorithms):
                for s in range(len(self.sizes)):
                    nbytes, seconds = int(self.nbytes[c, a, s]), float(self.seconds[c, a, s])
                    yield SweepRow(cluster.title, cluster.world_size, algorithm.full_name, nbytes, seconds)


class SweepBlock(NamedTuple):
    """An algorithm for one number of ranks, on clusters, at sizes: a unit of work."""

    clusters: tuple[Cluster, ...]  # with their transports
    calls: tuple[tuple[CollectiveCall, ...], ...]  # of each cluster, without cached ones
    faults: Faults


def sweep(
    algorithms: Several,
    clusters: Cluster | Iterable[Cluster],
    sizes: Sequence[int | str] | npt.NDArray[np.integer],
    *,
    dtype: str = "float32",
    op: str | None = None,
    root: int | None = None,
    calibration: Calibration | None = None,
    faults: Faults = NO_FAULTS,
    kept: Path | str | None = None,
    progress: bool | Report | None = None,
) -> Sweep:
    """Predict each algorithm on each cluster at each of ``sizes``: bytes per rank, or text such as "1 MiB".

    The answers equal those of ``simcomm.run(..., engine="compiled", record=False)`` to the last bit. Programs are
    traced and proved, and routes found, once for all clusters that differ only in speeds. If much is left after a
    second, all cores work, or the backend of ``joblib.parallel_config``. Predictions in the file ``kept`` (one JSON
    line each) are reused, and new ones are appended. ``progress(done, total)`` is called with numbers of predictions;
    True shows a bar on standard error. An interrupt returns the finished part.

    Raise InputError, ProgramError and TooLarge as ``run`` does, and KeyboardInterrupt if nothing is finished.

    >>> import simcomm
    >>> stars = [simcomm.star(hosts, "10 Gbit/s", "5 us") for hosts in (4, 8)]
    >>> result = sweep(["all_reduce/ring", "all_reduce/naive"], stars, [1 << 10, 1 << 20])
    >>> result, result.seconds[1, :, 1].round(6).tolist()
    (<Sweep of 2 clusters, 2 algorithms, 2 sizes>, [0.001608, 0.011884])
    """
    named, described, nbytes_of = _check_arguments(algorithms, clusters, sizes, calibration, faults)
    call = cache(partial(make_call, dtype=dtype, op=op, root=root))
    calls = [
        call(algorithm, cluster.world_size, size) for cluster, algorithm, size in product(described, named, nbytes_of)
    ]
    shape = len(described), len(named), len(nbytes_of)
    seconds, file = np.full(shape, np.nan), None
    if kept is not None:
        file = SweepFile(kept, describe_questions(described, calls, shape[1] * shape[2], faults))
        seconds.reshape(-1)[:] = file.known
    nbytes = np.array([call.nbytes for call in calls], np.int64).reshape(shape)
    blocks = list(_blocks(described, calls, np.isnan(seconds), faults))
    interrupted = False
    try:
        with _reporting(progress, int(np.count_nonzero(~np.isnan(seconds))), seconds.size) as report:
            for number, results in in_any_order(predict_block, [block for block, _ in blocks]):
                places = blocks[number][1]
                seconds.reshape(-1)[places] = results
                if file is not None:
                    file.add(places, results)
                report(int(np.count_nonzero(~np.isnan(seconds))), seconds.size)
    except KeyboardInterrupt:
        if np.isnan(seconds).all():
            raise
        interrupted = True
    return Sweep(described, named, nbytes_of, seconds, nbytes, interrupted)


def _check_arguments(
    algorithms: Several,
    clusters: Cluster | Iterable[Cluster],
    sizes: Any,
    calibration: Calibration | None,
    faults: Faults,
) -> tuple[tuple[Algorithm, ...], tuple[Cluster, ...], tuple[int, ...]]:
    """Return the algorithms, the clusters with their transports, and the sizes in bytes. Raise InputError."""
    if isinstance(algorithms, str | Algorithm):
        algorithms = [algorithms]
    named = check_several("algorithms", algorithms, of="algorithms")
    given = [clusters] if isinstance(clusters, Cluster) else check_several("clusters", clusters, of="clusters")
    for cluster in given:
        check_cluster(cluster, Cluster)
    check_used(calibration, given)
    calibrated = tuple(resolve_transport(cluster, calibration)[0] for cluster in given)
    for cluster in calibrated:
        check_faults(faults, cluster.graph, cluster.world_size)
    if isinstance(sizes, str) or not hasattr(sizes, "__len__"):
        raise InputError(f"sizes must be a list of bytes or of texts such as '1 MiB', not {sizes!r}")
    nbytes = tuple(as_bytes(size, "a size") for size in sizes)
    if not (named and calibrated and nbytes):
        raise InputError("a sweep needs at least one algorithm, one cluster and one size")
    return tuple(find_algorithm(name) for name in named), calibrated, nbytes


def _blocks(
    clusters: Sequence[Cluster], calls: Sequence[CollectiveCall], is_missing: npt.NDArray[np.bool_], faults: Faults
) -> Iterator[tuple[SweepBlock, list[int]]]:
    """Yield the missing predictions [clusters, algorithms, sizes] in blocks, with their indices in the results."""
    numbers = np.arange(is_missing.size).reshape(is_missing.shape)
    by_ranks = sorted(range(len(clusters)), key=lambda c: clusters[c].world_size)
    for _, same in groupby(by_ranks, key=lambda c: clusters[c].world_size):
        chosen = list(same)
        for a, begin in product(range(is_missing.shape[1]), range(0, len(chosen), BLOCK_CLUSTERS)):
            part = chosen[begin : begin + BLOCK_CLUSTERS]
            places = [numbers[c, a][is_missing[c, a]].tolist() for c in part]
            if any(places):
                of_clusters = tuple(tuple(calls[place] for place in each) for each in places)
                block = SweepBlock(tuple(clusters[c] for c in part), of_clusters, faults)
                yield block, [place for each in places for place in each]


def predict_block(block: SweepBlock) -> list[float]:
    """Return the seconds of a block's calls, by cluster."""
    first = next(call for calls in block.calls for call in calls)
    schedule = compact_schedule(first.algorithm, block.clusters[0].world_size, first.root)
    shared, seconds = compiled.SharedInputs(schedule), list[float]()
    for cluster, calls in zip(block.clusters, block.calls, strict=True):
        simulator = simulator_of(*resolve_transport(cluster))
        seconds += [simulator.sweep_seconds(call, block.faults, shared) for call in calls]
    return seconds


@contextmanager
def _reporting(progress: bool | Report | None, done: int, total: int) -> Iterator[Report]:
    """Within the context, return the progress callback: a bar that starts at ``done``, the given one, or a dummy.

    If standard error is not a terminal, the bar is one line at the end. Raise InputError unless ``progress`` is True,
    False, None or callable.
    """
    if callable(progress):
        yield progress
    elif progress is None or progress is False:
        yield lambda done, total: None
    elif progress is True:
        from rich.console import Console  # slow to import
        from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

        columns = *Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn()
        with Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task("predictions", total=total, completed=done)
            yield lambda done, total: bar.update(task, completed=done, total=total)
    else:
        raise InputError(f"progress must be True for a bar, or a function of two integers, not {quote(progress)}")
