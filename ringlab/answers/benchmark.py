"""``BenchAnswer``: real collectives with the figures of nccl-tests, each beside its prediction."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, cast

import realcomm
import simcomm
from collectives.calibration.calibration import Calibration, cached_calibration
from collectives.catalogue import find_algorithm, library
from collectives.checks import check_sequence, check_whole_number
from collectives.declaration import AUTO, Algorithm, auto
from collectives.errors import InputError
from collectives.records.environment import describe_environment
from collectives.records.summary import COLLECTIVE_FIGURES, collective_entry
from collectives.records.trace import Trace
from collectives.request import make_request
from collectives.spec import check_op, find_spec
from realcomm.launching.launcher import check_launch
from realcomm.measuring.collective_run import measure_all
from realcomm.measuring.measurement import RankFigures, TimedRequest
from ringlab.emulated.network import on_emulated
from ringlab.shared.answer import SCHEMA_VERSION, Record, to_plain
from ringlab.shared.ranges import grow_sizes
from scenarios import Scenario
from simcomm.cluster.cluster import Cluster
from simcomm.schedules import verified_schedule
from simcomm.selection import resolve_auto

USUAL = ("ring", "binomial", "pairwise", "dissemination")  # the first of these that a collective has, unless said


@dataclass(frozen=True)
class BenchOptions:
    """What to measure: every algorithm at every size, as nccl-tests' options say it."""

    collective: str = "all_reduce"
    algorithms: tuple[str, ...] = ()  # the usual one of the collective, unless said
    ranks: int = 2
    begin: str = "1K"
    end: str = "16M"
    factor: float = 4.0
    iterations: int = 20
    warmup: int = 5
    check: bool = True
    dtype: str = "float32"
    op: str = "sum"
    root: int = 0


@dataclass(frozen=True, kw_only=True)
class BenchRow(Record):
    """One algorithm at one size. Times in seconds, rates in 1e9 bytes/s; None of a buffer without an element."""

    collective: str
    algorithm: str
    world_size: int
    bytes: int
    time_s: float | None
    time_min_s: float | None
    time_max_s: float | None
    algbw_GBps: float | None  # noqa: N815  # the key of the JSON
    busbw_GBps: float | None  # noqa: N815
    count: int  # elements, as nccl-tests counts them
    dtype: str
    op: str
    root: int  # -1 where the collective has none, as in nccl-tests
    wrong: int | None  # elements that were not what they must be; None where nothing was checked
    predicted_s: float | None  # None without a calibration
    error: float | None  # of the prediction, relative to what was measured


@dataclass(frozen=True, repr=False)
class BenchAnswer(Record):
    """What ``bench`` measured; after an interrupt, what was measured by then."""

    collectives: tuple[BenchRow, ...]
    interrupted: bool
    environment: dict[str, str | int] = field(default_factory=describe_environment)

    def __repr__(self) -> str:
        return f"<BenchAnswer: {len(self.collectives)} rows{', interrupted' * self.interrupted}>"

    @property
    def wrong(self) -> int:
        """Elements of all rows that were not what they must be."""
        return sum(row.wrong or 0 for row in self.collectives)

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION,
            "kind": "bench",
            "environment": self.environment,
            "interrupted": self.interrupted,
            "collectives": to_plain(self.collectives),
        }


@dataclass(frozen=True)
class Benchmark:
    """A benchmark that is ready to start: its measurements, and the calibration to predict them with."""

    options: BenchOptions
    backend: str
    timeout: float  # seconds
    calibration: Calibration | None
    measurements: tuple[TimedRequest, ...]
    emulated: Cluster | None = None  # the cluster on whose network the ranks run, built on this machine

    def run(self, on_row: Callable[[BenchRow], None] | None = None) -> BenchAnswer:
        """Measure, and hand each row to ``on_row`` as soon as it is known; an interrupt ends it. Raises RunFailed."""
        rows: list[BenchRow] = []

        def add(measurement: TimedRequest, figures: RankFigures) -> None:
            rows.append(self._row(measurement, figures))
            if on_row is not None:
                on_row(rows[-1])

        interrupted = False
        options: dict[str, Any] = {"backend": self.backend, "timeout": self.timeout}
        try:
            with nullcontext() if self.emulated is None else realcomm.emulate(self.emulated) as network:
                measure_all(self.measurements, self.options.ranks, add, network=network, **options)
        except KeyboardInterrupt:
            interrupted = True
        return BenchAnswer(tuple(rows), interrupted)

    def _row(self, measurement: TimedRequest, figures: RankFigures) -> BenchRow:
        request, ranks = measurement.request, self.options.ranks
        predicted = self._predict(measurement)
        row = {
            **_measured(measurement, ranks, figures),
            "count": request.elements // ranks if request.spec.has_parts else request.elements,
            "dtype": request.dtype,
            "op": request.op if request.spec.reduces else "none",
            "root": request.root if request.spec.rooted else -1,
            "wrong": figures.wrong if measurement.check else None,
            "predicted_s": predicted,
            "error": None if predicted is None else (predicted - figures.median_s) / figures.median_s,
        }
        nothing_sent = dict.fromkeys((*COLLECTIVE_FIGURES, "wrong", "predicted_s", "error"))
        return BenchRow(**(row if request.elements else row | nothing_sent))

    def _predict(self, measurement: TimedRequest) -> float | None:
        if self.calibration is None:
            return None
        cluster = simcomm.this_machine(self.options.ranks)
        return simcomm.run(measurement.request, cluster, calibration=self.calibration).elapsed


def prepare(
    options: BenchOptions, *, backend: str = "gloo", timeout: float = 600.0, emulated: Scenario | None = None
) -> Benchmark:
    """Return the benchmark, ready to start; on the cluster of a scenario if one is to be ``emulated``.

    It then has as many ranks, and no prediction. Raises InputError for what cannot be measured.
    """
    if not isinstance(options, BenchOptions):
        raise InputError(f"options is {options!r}; give BenchOptions, for example BenchOptions(collective='broadcast')")
    if emulated is not None:
        emulated = on_emulated(emulated)
        options = replace(options, ranks=emulated.cluster.world_size)
    check_launch(options.ranks, backend, timeout)
    if emulated is not None:
        return Benchmark(options, backend, timeout, None, measurements(options), emulated.cluster)
    calibration = _find_calibration(options.ranks, backend)
    return Benchmark(options, backend, timeout, calibration, measurements(options, calibration))


def bench(
    options: BenchOptions | None = None,
    *,
    backend: str = "gloo",
    timeout: float = 600.0,
    emulated: Scenario | None = None,
) -> BenchAnswer:
    """Measure collectives on real processes of this machine, and predict each where a calibration is cached.

    With a scenario to be ``emulated`` they run on its network, built on this machine, and are not predicted.
    ``timeout`` is in seconds. Raises InputError for what cannot be measured, and RunFailed.

    >>> answer = bench(BenchOptions(begin="1K", end="1K", iterations=1))  # doctest: +SKIP
    >>> answer.collectives[0].algorithm, answer.wrong  # doctest: +SKIP
    ('ring', 0)
    """
    chosen = BenchOptions() if options is None else options
    return prepare(chosen, backend=backend, timeout=timeout, emulated=emulated).run()


def measurements(options: BenchOptions, calibration: Calibration | None = None) -> tuple[TimedRequest, ...]:
    """Return a measurement for each row, sizes rounded down to what the algorithm can work on.

    ``auto`` is chosen by the calibration. Raises InputError, also where there is none to choose by.
    """
    check_op(options.op, options.dtype)
    check_whole_number("iterations", options.iterations, at_least=1)
    check_whole_number("warmup", options.warmup, at_least=0)
    algorithms = _algorithms(options)
    if calibration is None and any(not algorithm.is_decided for algorithm in algorithms):
        raise InputError(
            f"--algorithm {AUTO}: nothing to choose by, as this machine is not calibrated for {options.ranks} ranks "
            f"on this backend; `ringlab calibrate --ranks {options.ranks}` does it, for nccl with `--backend nccl`"
        )
    sizes = grow_sizes(options.begin, options.end, options.factor)
    return tuple(_measurement(options, found, size, calibration) for size in sizes for found in algorithms)


def _measurement(
    options: BenchOptions, algorithm: Algorithm, nbytes: int, calibration: Calibration | None
) -> TimedRequest:
    ranks = options.ranks
    request = make_request(algorithm, ranks, nbytes, dtype=options.dtype, op=options.op, root=options.root)
    request = resolve_auto(request, simcomm.this_machine(ranks), calibration)
    verified_schedule(request.algorithm, ranks, options.root)
    return TimedRequest(request, options.warmup, options.iterations, None, options.check)


def _algorithms(options: BenchOptions) -> list[Algorithm]:
    collective = find_spec(options.collective).name
    usual = [name for name in USUAL if f"{collective}/{name}" in library()][:1]
    names = check_sequence("algorithms", options.algorithms, of="names") or usual
    return [auto(collective) if name == AUTO else find_algorithm(name, collective) for name in names]


def _measured(measurement: TimedRequest, ranks: int, figures: RankFigures) -> dict[str, Any]:
    facts = {
        "nbytes": float(measurement.request.nbytes),
        "time_min_s": figures.least_s,
        "time_max_s": figures.most_s,
    }
    trace = Trace(measurement.request.algorithm.full_name, "measured", ranks, figures.median_s, facts=facts)
    return cast(dict[str, Any], collective_entry(trace))


def _find_calibration(ranks: int, backend: str) -> Calibration | None:
    """Return the cached calibration, where a fresh one of this machine and backend is there."""
    try:
        return cached_calibration(ranks, backend)
    except InputError:
        return None
