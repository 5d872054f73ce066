"""``ringlab replay``: replay a recorded run on other networks or with other algorithms, without running the script."""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple

from typer import Argument, Option

import viz
from collectives.catalogue import find_algorithm
from collectives.declaration import AUTO, NCCL
from collectives.errors import InputError
from collectives.records.calibration import Calibration, read_calibration
from collectives.records.limits import find_limits
from collectives.records.trace import Trace
from collectives.records.waits import divide_path
from collectives.spec import SPECS
from collectives.units import format_size, format_time
from replay.formats import read_any_recording
from replay.recording import Recording
from replay.simulation.figures import (
    CallFigures,
    MarkFigures,
    WaitingLine,
    call_figures,
    describe_stuck,
    mark_figures,
    waiting_lines,
)
from replay.simulation.repeated_ranks import widen
from replay.simulation.replay import ReplayedRun, Replayer
from replay.simulation.traces import make_trace
from ringlab.shared.answer import NOT_IN_JSON, Answer, AnswerRecord
from ringlab.shared.options import CalibrationOpt, JsonOpt, drawing, option, with_groups
from ringlab.shared.output import check_outputs, deliver
from ringlab.shared.progress import Progress, TerminalProgress, computing
from ringlab.table import MOST_ROWS, Line, Part, Sentences, Table, format_ratio
from scenarios.cluster_sections import HERE
from scenarios.networks import read_network

PLACES = ("preset", "topology", "file", "link")  # keys that describe a new network


@dataclass(frozen=True)
class ReplayOptions:
    """The options of ``ringlab replay``."""

    on: str = option(
        HERE,
        help="Scenario, machine, graph file, or keys such as 'topology=ring hosts=8'. Default: this-machine.",
        metavar="NETWORK",
    )
    algorithm: list[str] | None = option(
        None,
        help="Algorithm of a collective, such as all_reduce=ring. NAME may also be FILE.py:NAME, auto or nccl. "
        "Repeatable.",
        metavar="COLLECTIVE=NAME",
    )
    what_if: list[str] | None = option(
        None,
        help="Also replay a variant: a network, KEY=VALUE, COLLECTIVE=NAME, or several of these in quotes. Repeatable.",
        metavar="TEXT",
    )
    ranks: int | None = option(
        None, help="Number of ranks, a multiple of the recorded number. Default: as recorded.", min=1
    )
    calibration: CalibrationOpt = None


@with_groups
def command(
    file: Annotated[
        Path,
        Argument(metavar="RUN", help="Recording, Chakra trace (the .et file of any rank), or torch.profiler traces."),
    ],
    *,
    options: ReplayOptions,
    plot: Annotated[
        Path | None,
        drawing(
            "a picture of messages",
            "Output file. .html: player. .gif: animation. .png, .svg, .pdf: timeline. .perfetto.json: Perfetto trace.",
        ),
    ] = None,
    trace: Annotated[
        Path | None, Option(metavar="FILE", help="Write all messages as a trace for `ringlab animate`.")
    ] = None,
    json_to: JsonOpt = None,
) -> None:
    """Replay a recorded run on other networks or with other algorithms, without running the script again."""
    check_outputs(json_to, plot, trace, reads=options.calibration)
    replayed = replay_file(file, options, progress=TerminalProgress())
    writers: list[Callable[[], object]] = [partial(viz.draw, replayed.trace, plot)] if plot is not None else []
    writers += [partial(replayed.trace.write, trace)] if trace is not None else []
    deliver(replayed, json_to, *writers)


class AskedReplay(NamedTuple):
    """The network and the algorithms of one replay, as parsed from the command line."""

    network: str
    changes: tuple[str, ...]  # keys of the network
    algorithms: dict[str, str]


def read_what_if(text: str, base: AskedReplay) -> AskedReplay:
    """Parse a what-if, which changes the network or the algorithms of ``base``.

    Raise InputError if ``text`` is empty or has an unclosed quote.

    >>> own = AskedReplay("star8", (), {"all_reduce": "ring"})
    >>> read_what_if("all_reduce=naive bandwidth='1 Gbit/s'", own)
    AskedReplay(network='star8', changes=('bandwidth=1 Gbit/s',), algorithms={'all_reduce': 'naive'})
    >>> read_what_if("two-racks", own).network
    'two-racks'
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InputError(f"--what-if {text}: {error}") from error
    algorithms, keys, network = dict(base.algorithms), list[str](), base.network
    for word in words:
        name, equals, value = word.partition("=")
        if equals and name in SPECS:
            algorithms[name] = value
        elif equals:
            keys.append(word)
        else:
            network = word
    if not words:
        raise InputError("--what-if must not be empty; give a network, keys such as hosts=8, or all_reduce=ring")
    if any(key.partition("=")[0].removeprefix("cluster.") in PLACES for key in keys):
        return AskedReplay(shlex.join(keys), (), algorithms)
    changes = base.changes if network == base.network else ()
    return AskedReplay(network, (*changes, *keys), algorithms)


def read_algorithms(texts: Sequence[str]) -> dict[str, str]:
    """Parse ``COLLECTIVE=NAME`` strings. Raise InputError if one is malformed or names an unknown algorithm."""
    algorithms = {}
    for text in texts:
        collective, equals, name = text.partition("=")
        if not equals or collective not in SPECS:
            raise InputError(f"--algorithm {text}: expected COLLECTIVE=NAME, for example all_reduce=ring")
        if name not in (AUTO, NCCL):
            find_algorithm(name, collective)
        algorithms[collective] = name
    return algorithms


@dataclass(frozen=True, kw_only=True)
class ReplayRow(AnswerRecord):
    """The times of a replay on one network, in seconds."""

    title: str
    cluster: str
    elapsed_s: float
    complete: bool
    computed_s: float  # in a rank's first stream, the mean over all ranks
    waited_s: float
    messages: int

    def cells(self, base_s: float) -> list[str]:
        """Return the table's cells. One is the ratio of the time to ``base_s``, the time on the first network."""
        end = format_time(self.elapsed_s) if self.complete else f"never ends ({format_time(self.elapsed_s)})"
        times = format_ratio(self.elapsed_s / base_s) if base_s and self.complete else "-"
        return [self.title, end, times, format_time(self.computed_s), format_time(self.waited_s), f"{self.messages:,}"]


@dataclass(frozen=True, repr=False, kw_only=True)
class ReplayAnswer(Answer):
    """The result of ``ringlab replay``: the times of a recording on a network, with and without each what-if."""

    kind: ClassVar[str] = "replay"

    title: str
    file: str
    where: str
    ranks: int
    calls: int
    measured_s: float | None  # time of the recorded run; None if it did not run on real ranks
    own: ReplayRow
    what_ifs: tuple[ReplayRow, ...]
    collectives: tuple[CallFigures, ...]
    lines: tuple[WaitingLine, ...]
    marks: tuple[MarkFigures, ...]
    critical_path: dict[str, float]  # seconds by kind of segment: computing, bandwidth, latency, waiting
    limits: str
    stuck: tuple[str, ...]
    notes: tuple[str, ...]
    trace: Trace = field(metadata=NOT_IN_JSON)

    def to_dict(self) -> dict[str, object]:
        content = super().to_dict()
        for line, waiting in zip(content["lines"], self.lines, strict=True):
            line |= {"line": str(line.pop("location")), "text": waiting.location.text}
        return content

    def show(self) -> Iterator[Part]:
        yield Line(f"{self.title}: {self.calls:,} calls of {self.ranks} ranks, recorded on {self.where}", "bold")
        base_s = self.own.elapsed_s if self.own.complete else 0.0
        headings = ["network", "time", "ratio", "a rank\ncomputes", "a rank\nwaits", "messages"]
        yield Table(self.own.cluster, headings, [row.cells(base_s) for row in (self.own, *self.what_ifs)])
        if self.measured_s is not None and base_s:
            off = f"{self.own.elapsed_s / self.measured_s - 1:+.0%}"
            yield f"The recorded run took {format_time(self.measured_s)}; the replay is off by {off}."
        yield from (Line(sentence, "bold") for sentence in self.stuck)
        if self.collectives:
            calls = [
                [
                    each.what,
                    f"{each.number:,}",
                    *map(format_size, (each.bytes, each.wire_bytes)),
                    format_time(each.waited_s),
                ]
                for each in self.collectives
            ]
            yield Table("Calls", ["collective", "calls", "buffers", "sent", "a rank\nwaits"], calls)
        if self.lines:
            lines = [
                [each.what, str(each.location), f"{each.calls:,}", format_time(each.mean_s),
                 f"{format_time(each.most_s)} ({each.most_rank})"]
                for each in self.lines[:MOST_ROWS]
            ]  # fmt: skip
            yield Table("Where ranks wait", ["for", "line", "calls", "mean", "most (rank)"], lines, words=2)
        if self.marks:
            marks = [
                [each.name, f"{each.number:,}", format_time(each.mean_s), format_time(each.most_s)]
                for each in self.marks
            ]
            yield Table("Spans of the program", ["name", "count", "mean", "longest"], marks)
        parts = ", ".join(f"{format_time(seconds)} {kind}" for kind, seconds in self.critical_path.items())
        sentences = [f"The critical path consists of {parts}."] if parts and not self.stuck else []
        yield Sentences([*self.notes, *sentences, *([] if self.stuck else [self.limits])])


def replay_file(file: Path | str, options: ReplayOptions, progress: Progress | None = None) -> ReplayAnswer:
    """Replay a recording as ``options`` describes. Raise InputError if the file is invalid or cannot be replayed."""
    progress = progress or Progress()
    with computing(progress, f"reading {file}"):
        recording = read_any_recording(file)
    if options.ranks is not None:
        recording = widen(recording, options.ranks)
    calibration = None if options.calibration is None else read_calibration(options.calibration)
    base = AskedReplay(options.on, (), read_algorithms(options.algorithm or ()))
    variants = [(text, read_what_if(text, base)) for text in options.what_if or ()]
    with computing(progress, "replaying its messages"):
        replayer = Replayer(recording)
        run = _replayed(replayer, base, calibration)
        what_ifs = [_row(text, _replayed(replayer, variant, calibration)) for text, variant in variants]
        return _answer(str(file), recording, (options.on, run), what_ifs)


def _replayed(replayer: Replayer, request: AskedReplay, calibration: Calibration | None) -> ReplayedRun:
    network = read_network(request.network, replayer.recording.world_size, request.changes)
    algorithms: Mapping[str, str] = request.algorithms
    return replayer.on(network.cluster, algorithms, calibration=calibration, faults=network.faults)


def _row(title: str, run: ReplayedRun) -> ReplayRow:
    ranks = run.recording.world_size
    busy, ends = float(run.busy.sum()) / ranks, [end for end in run.finished.tolist() if end < float("inf")]
    mean = sum(ends) / len(ends) if ends else run.elapsed
    return ReplayRow(
        title=title,
        cluster=run.cluster.title,
        elapsed_s=run.elapsed,
        complete=run.is_complete,
        computed_s=busy,
        waited_s=max(0.0, mean - busy),
        messages=len(run.messages.src),
    )


def _answer(file: str, recording: Recording, named: tuple[str, ReplayedRun], what_ifs: list[ReplayRow]) -> ReplayAnswer:
    title, run = named
    trace, path = make_trace(run), dict[str, float]()
    for part in divide_path(trace):
        path[part.kind] = path.get(part.kind, 0.0) + part.end - part.begin
    took = float(recording.took().max(initial=0.0)) if recording.entries.took.any() else None
    limits = find_limits(trace)
    return ReplayAnswer(
        title=recording.title,
        file=file,
        where=recording.where,
        ranks=recording.world_size,
        calls=len(recording.calls),
        measured_s=took,
        own=_row(title, run),
        what_ifs=tuple(what_ifs),
        collectives=tuple(call_figures(run)),
        lines=tuple(waiting_lines(run)),
        marks=tuple(mark_figures(run)),
        critical_path=dict(sorted(path.items(), key=lambda item: -item[1])),
        limits=f"{limits.heading}. {limits.sentence}",
        stuck=tuple(describe_stuck(run)),
        notes=(*recording.notes, *run.carrier.notes),
        trace=trace,
    )
