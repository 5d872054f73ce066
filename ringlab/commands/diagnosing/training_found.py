"""A training as a diagnosis tells it: the step by phases and streams, its critical path, collectives beside NCCL's."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median

from collectives.costs.bounds import bus_factor
from collectives.units import format_size, format_time
from ringlab.shared.answer import AnswerRecord
from ringlab.table import Part, Table, format_or_dash, format_ratio, time_unit
from simcomm.diagnosis.evidence.expectation import DiagnosedCase
from simcomm.diagnosis.evidence.facts import ProfiledCall, RunTrace
from simcomm.diagnosis.evidence.profiled_step import ProfiledStep
from simcomm.diagnosis.rules.training import (
    busbw,
    exposed_sync,
    is_training,
    phase_seconds,
    profiled_instances,
    step_parts,
    step_seconds,
)

MOST_SHOWN = 12  # phases, parts of the path, collectives


@dataclass(frozen=True)
class PartFound(AnswerRecord):
    """A phase or a stream of a step: seconds as the middle of the ranks, with the least and the greatest rank."""

    name: str
    time_s: float
    fastest_rank_s: float
    slowest_rank_s: float
    slowest_rank: int

    @classmethod
    def of(cls, name: str, by_rank: Mapping[int, float]) -> "PartFound":
        """Return what is said of a phase or stream from its seconds by rank."""
        slowest = max(by_rank, key=by_rank.__getitem__)
        return cls(name, median(by_rank.values()), min(by_rank.values()), by_rank[slowest], slowest)


@dataclass(frozen=True)
class PathFound(AnswerRecord):
    """What a rank does on the critical path, in seconds of a step."""

    what: str
    rank: int
    time_s: float


@dataclass(frozen=True)
class CallFound(AnswerRecord):
    """A collective of a size: of its calls the middle, on the rank that waits least in each; None: not known."""

    collective: str
    bytes: int
    calls: int
    time_s: float
    predicted_s: float | None
    busbw_GBps: float  # noqa: N815
    predicted_busbw_GBps: float | None  # noqa: N815
    exposed_s: float


@dataclass(frozen=True)
class TrainingFound(AnswerRecord):
    """A training step; seconds, None where no file tells them."""

    steps: tuple[PartFound, ...] = ()
    step_s: float | None = None
    exposed_s: float | None = None
    step_parts: Mapping[str, float] | None = None
    streams: tuple[PartFound, ...] = ()
    critical_path: tuple[PathFound, ...] = ()
    predicted_step_s: float | None = None
    predicted_step_interval: tuple[float, float] | None = None
    collectives: tuple[CallFound, ...] = ()

    def show(self) -> Iterator[Part]:
        """Yield the tables that a reader sees, none where there is no training."""
        headings = ["middle\n({})", "fastest\n({})", "slowest\n({})", "slowest rank"]
        for title, name, parts in (
            (
                f"A training step of {format_time(self.step_s or 0.0)}, by phase; "
                f"{format_time(self.exposed_s or 0.0)} of sync stand alone",
                "phase",
                self.steps,
            ),
            ("A step on the GPUs, by stream", "stream", self.streams),
        ):
            if parts:
                unit, form = time_unit(one.time_s for one in parts)
                rows = [
                    [one.name, *map(form, (one.time_s, one.fastest_rank_s, one.slowest_rank_s)), str(one.slowest_rank)]
                    for one in parts
                ]
                yield Table(title, [name, *(one.format(unit) for one in headings)], rows)
        if self.step_s and self.step_parts:
            unit, form = time_unit(self.step_parts.values())
            shown = [[name, form(one), f"{one / self.step_s:.0%}"] for name, one in self.step_parts.items() if one > 0]
            yield Table("Where the step goes", ["", f"time\n({unit})", "share"], shown)
        yield from self._path()
        yield from self._collectives()

    def _path(self) -> Iterator[Part]:
        whole = sum(one.time_s for one in self.critical_path)
        if self.critical_path:
            unit, form = time_unit(one.time_s for one in self.critical_path)
            rows = [
                [one.what, str(one.rank), form(one.time_s), f"{one.time_s / whole:.0%}"]
                for one in self.critical_path[:MOST_SHOWN]
            ]
            yield Table("The critical path of a step", ["", "rank", f"time\n({unit})", "share"], rows)
        if self.predicted_step_s is not None and self.predicted_step_interval is not None:
            low, high = map(format_time, self.predicted_step_interval)
            yield (
                f"With NCCL as fast as its model says, and without a pause of the GPUs, a step of {format_time(whole)} "
                f"would take {format_time(self.predicted_step_s)} ({low} to {high})."
            )

    def _collectives(self) -> Iterator[Part]:
        if self.collectives:
            unit, form = time_unit(one.time_s for one in self.collectives)
            rows = [
                [
                    one.collective,
                    format_size(one.bytes),
                    str(one.calls),
                    form(one.time_s),
                    format_or_dash(one.predicted_s, form),
                    format_ratio(one.busbw_GBps),
                    format_or_dash(one.predicted_busbw_GBps, format_ratio),
                    form(one.exposed_s),
                ]
                for one in self.collectives
            ]
            headings = ["", "size", "calls", f"each\n({unit})", f"should be\n({unit})", "busbw\n(GB/s)"]
            headings += ["should be\n(GB/s)", f"alone\n({unit})"]
            yield Table("Collectives of the profile, the longest first", headings, rows)


def find_training(case: DiagnosedCase) -> TrainingFound:
    """Return the step of the first trace that has phases, and what profiles say of GPUs and collectives."""
    trace = next((one.trace for one in case.facts.of(RunTrace) if is_training(one.trace)), None)
    found = case.profiled_step or ProfiledStep(0.0, {}, {}, None, {})
    phases = [] if trace is None else [PartFound.of(*one) for one in phase_seconds(trace).items()]
    return TrainingFound(
        steps=tuple(sorted(phases, key=lambda one: -one.time_s)[:MOST_SHOWN]),
        step_s=None if trace is None else step_seconds(trace),
        exposed_s=None if trace is None else exposed_sync(trace),
        step_parts={} if trace is None else step_parts(trace),
        streams=tuple(PartFound.of(*one) for one in found.streams.items()),
        critical_path=tuple(PathFound(*key, seconds) for key, seconds in found.path.items()),
        predicted_step_s=found.expected.seconds if found.expected else None,
        predicted_step_interval=(found.expected.low, found.expected.high) if found.expected else None,
        collectives=tuple(sorted(_calls(case), key=lambda one: -one.time_s * one.calls)[:MOST_SHOWN]),
    )


def _calls(case: DiagnosedCase) -> Iterator[CallFound]:
    """Yield each collective of each size, beside its prediction where the machine is known."""
    calls: dict[tuple[str, int, int], list[tuple[ProfiledCall, float | None]]] = defaultdict(list)
    for one, due in profiled_instances(case):
        calls[one.name, one.nbytes, one.ranks].append((one, due))
    for (name, nbytes, ranks), same in calls.items():
        dues = [due for _, due in same if due is not None]
        yield CallFound(
            collective=name,
            bytes=nbytes,
            calls=len(same),
            time_s=median(one.end - one.begin for one, _ in same),
            predicted_s=median(dues) if dues else None,
            busbw_GBps=median(busbw(one) for one, _ in same),
            predicted_busbw_GBps=nbytes * bus_factor(name, ranks) / median(dues) / 1e9 if dues else None,
            exposed_s=median(one.exposed for one, _ in same),
        )
