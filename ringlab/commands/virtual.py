"""``ringlab virtual``: run a torch.distributed program on virtual ranks to find its time, waits, hangs and errors."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import numpy as np
import typer
from typer import Option
from typer.core import TyperCommand

from collectives.budget import Gigabyte, allowed
from collectives.errors import InputError
from collectives.quoting import make_printable
from collectives.records.calibration import MachineLoad
from collectives.records.trace import Trace
from collectives.units import count, format_size, format_time, parse_latency
from realcomm.calibration.load import watch_load
from realcomm.launching.torch_process import check_torch
from replay.recording import Recording
from replay.recording_builder import STEP
from replay.simulation.carriers import MeasuredCarrier
from replay.simulation.figures import mark_figures
from replay.simulation.replay import ReplayedRun, replay
from replay.simulation.traces import make_trace
from ringlab.commands.predicting.replay import read_algorithms
from ringlab.shared.answer import NOT_IN_JSON, Answer, AnswerRecord
from ringlab.shared.options import JsonOpt, option, with_groups
from ringlab.shared.output import check_outputs, deliver, make_console
from ringlab.table import MOST_ROWS, Line, Part, Row, Table
from scenarios.networks import read_network
from simcomm.cluster.cluster import Cluster
from simcomm.cluster.placement import make_room
from simcomm.cluster.topologies import star
from virtual.hosting.host import Show, VirtualHost, show_on_own
from virtual.options import LAUNCH_S, MOST_LIVE, VirtualOptions
from virtual.outcome import Finished
from virtual.process.programs import UserProgram
from virtual.ranks.finding import STARTER, ProgramFinding


@dataclass(frozen=True)
class VirtualRank(AnswerRecord):
    """One rank's run, in seconds of virtual time."""

    rank: int
    finished_s: float
    computed_s: float
    waited_s: float
    called_bytes: int  # buffers and messages of all its calls


@dataclass(frozen=True, repr=False)
class VirtualAnswer(Answer):
    """The result of ``ringlab virtual``."""

    kind = "virtual"

    program: str
    cluster: str
    ranks: tuple[VirtualRank, ...]
    elapsed_s: float
    timing: str  # "live", "replayed", or "none" for a run that was stopped
    jobs: int
    steps: int = 0  # optimizer steps of all ranks together
    step_s: float | None = None  # mean
    step_range_s: tuple[float, float] | None = None  # expected range of a short step on this machine
    load: str = ""  # a higher load of the machine during the run than during the calibration, as text
    compute: str = "zero"  # --compute
    is_repeated: bool = False  # whether each rank started the program's ranks again
    findings: tuple[ProgramFinding, ...] = ()
    notes: tuple[str, ...] = ()
    real_s: float = 0.0
    has_called: bool = field(default=False, metadata=NOT_IN_JSON)  # collectives or messages, even without elements
    recording: Recording | None = field(default=None, metadata=NOT_IN_JSON)
    replayed: ReplayedRun | None = field(default=None, metadata=NOT_IN_JSON)
    live: Trace | None = field(default=None, metadata=NOT_IN_JSON)  # only of a run with live timing

    @classmethod
    def of(cls, finished: Finished, options: VirtualOptions, load: MachineLoad | None = None) -> "VirtualAnswer":
        """Return the result of a run. Without live timing, the run's recording is replayed on the cluster.

        ``load`` is the load of other processes on this machine during the run.
        """
        outcome = finished.outcome
        recorded = [place for place, recording in enumerate(finished.recordings) if recording is not None]
        ranked = [place for place, job in enumerate(outcome.jobs) if job.ranks]
        place = (recorded or ranked or [0])[-1]
        job, recording = outcome.jobs[place], finished.recordings[place]
        run = None
        if finished.trace is None and recording is not None:
            run = replay(recording, make_room(options.cluster, recording.world_size), options.algorithms)
        steps: Sequence[float] = job.steps
        if run is not None:
            steps = [mark.mean_s for mark in mark_figures(run) if mark.name == STEP for _ in range(mark.number)]
        step_s = fmean(steps) if steps else None
        more_load = _describe_more_load(run, load)
        slowest = BUSIEST if more_load else SLOWEST
        is_short = load is not None and step_s is not None and step_s < SHORT_STEP_S
        return cls(
            program=outcome.title,
            cluster=options.cluster.title,
            ranks=_ranks(job.ranks, run, recording),
            elapsed_s=job.elapsed if run is None else run.elapsed,
            timing="none" if job.finding is not None else "live" if run is None else "replayed",
            jobs=len(outcome.jobs),
            steps=len(steps),
            step_s=step_s,
            step_range_s=(step_s * FASTEST, step_s * slowest) if step_s is not None and is_short else None,
            load=more_load if is_short else "",
            compute=options.compute,
            is_repeated=options.ranks > 1
            and not outcome.jobs[0].has_group
            and any(job.has_group for job in outcome.jobs),
            findings=outcome.findings,
            notes=() if run is None else tuple(run.carrier.notes),
            real_s=outcome.seconds,
            has_called=job.has_called,
            recording=recording,
            replayed=run,
            live=finished.trace,
        )

    @property
    def trace(self) -> Trace | None:
        """The trace of the run, or None if nothing was recorded or there are too many messages to draw."""
        if self.replayed is None or len(self.replayed.message_end) > allowed(Gigabyte.RECORDED):
            return self.live
        return make_trace(self.replayed)

    def __repr__(self) -> str:
        parts = [
            count(len(self.ranks), "rank"),
            format_time(self.elapsed_s),
            *(each.kind for each in self.findings[:1]),
        ]
        return f"<VirtualAnswer of {self.program}: {', '.join(parts)}>"

    def writers(self, files: "FileOptions") -> Iterator[Callable[[], object]]:
        """Yield a function per requested file. It writes the file, or prints that findings prevented this.

        Raises InputError if there is nothing to write, and the run has no findings.
        """
        requested = [(files.recording, self.recording), (files.trace, self.trace if files.trace else None)]
        for path, content in requested:
            if path is None:
                continue
            if content is not None:
                yield partial(content.write, path)
            elif self.findings:
                note = f"{path}: not written, because the run has findings"
                yield partial(make_console(stderr=True).print, note)
            else:
                raise InputError(f"{path}: not written; the program created no process group or sent too many messages")

    def show(self) -> Iterator[Part]:
        if self.is_repeated:
            yield "warning: each rank started the program's ranks again; pass --ranks 0 to run the program once"
        if self.timing != "none":
            how = f"on {self.cluster}, " + ("timed while it ran" if self.timing == "live" else "replayed")
            yield Line(f"{self.program}: {format_time(self.elapsed_s)} of virtual time {how}", "bold")
            if self.step_s is not None:
                note = "; compute takes no time (--compute zero)" if self.compute == "zero" else ""
                yield Line(
                    f"a step takes {format_time(self.step_s)}, the mean of {self.steps} steps on all ranks{note}"
                )
            if self.step_range_s is not None:
                low, high = map(format_time, self.step_range_s)
                note = f"; {self.load}; {AS_LOADED}" if self.load else ""
                yield Line(f"because such short steps depend on the machine's load, expect {low} to {high}{note}")
            calls = 0 if self.recording is None else len(self.recording.calls)
            if calls or self.elapsed_s:
                yield Table(None, ["", "finished", "computed", "waited", "called"], [*self._rows()])
            if not self.has_called:
                alone = all(rank.rank == STARTER for rank in self.ranks)
                advice = "; pass --ranks N unless the program starts its own ranks" if alone else ""
                yield f"No rank called a collective or sent a message with torch.distributed{advice}."
        for finding in self.findings:
            first, *others = finding.text.splitlines()
            yield Line(make_printable(first), "bold")
            yield from (Line(make_printable(line)) for line in others)

    def _rows(self) -> Iterator[Row]:
        named = {f"rank {rank.rank}": rank for rank in self.ranks}
        if len(self.ranks) > MOST_ROWS:
            finished, waited, computed = map(attrgetter, ("finished_s", "waited_s", "computed_s"))
            picked = {
                "first to finish": min(self.ranks, key=finished),
                "last to finish": max(self.ranks, key=finished),
                "waited most": max(self.ranks, key=waited),
                "computed most": max(self.ranks, key=computed),
            }
            named = {f"rank {rank.rank}, {words}": rank for words, rank in picked.items()}
        for name, rank in named.items():
            times = map(format_time, (rank.finished_s, rank.computed_s, rank.waited_s))
            yield [name, *times, format_size(rank.called_bytes)]


def _describe_more_load(run: ReplayedRun | None, load: MachineLoad | None) -> str:
    if load is None or run is None or not isinstance(run.carrier, MeasuredCarrier):
        return ""
    before = run.carrier.message_costs.load
    if before is None or load.others < before.others + MORE_LOAD:
        return ""
    return f"{load.describe()}, and {before.others:.0%} during the calibration"


def _ranks(states: Sequence[Any], run: ReplayedRun | None, recording: Recording | None) -> tuple[VirtualRank, ...]:
    called = [0.0] * len(states)
    if recording is not None:
        called = np.bincount(recording.calls.rank, recording.calls.nbytes, len(states)).tolist()
    rows = []
    for place, state in enumerate(states):
        finished = state.finished if run is None else float(run.finished[place])
        waited = state.waited if run is None else max(0.0, finished - state.computed)
        rows.append(VirtualRank(state.number, finished, state.computed, waited, int(called[place])))
    return tuple(rows)


SHORT_STEP_S = 0.03  # in shorter steps, waiting for a core to wake gloo's threads is a large part
FASTEST, SLOWEST, BUSIEST = 0.6, 1.6, 3.0  # real over predicted; BUSIEST: with more load than during the calibration
MORE_LOAD = 0.1  # of all cores
AS_LOADED = "run `ringlab calibrate` under the load of the real run"
USUAL = 64  # ranks of the default cluster if --ranks is 0


class ProgramCommand(TyperCommand):
    """A command that takes its options before the program or directly after it. Later arguments go to the program."""

    def parse_args(self, context: Any, args: list[str]) -> list[str]:
        """Parse the options. Options that directly follow the program's name are first moved before the name."""
        program, rest = args[: 1 + (args[:1] == ["-m"])], args[1 + (args[:1] == ["-m"]) :]
        options = {name: each for each in self.params for name in each.opts if each.name != "module"}
        place = 0
        while place < len(rest) and (known := options.get(rest[place].partition("=")[0])) is not None:
            place += 1 if getattr(known, "is_flag", False) or "=" in rest[place] else 2
        if program and (program[0] == "-m" or not program[0].startswith("-")):
            args = [*rest[:place], *program, *rest[place:]]
        return super().parse_args(context, args)


SETTINGS = {"cls": ProgramCommand, "context_settings": {"allow_interspersed_args": False}}


@dataclass(frozen=True)
class ProgramOptions:
    """The options of a run on virtual ranks."""

    ranks: int = option(0, help="Number of ranks. 0: the program starts its own processes.", min=0, metavar="N")
    on: str | None = option(
        None,
        help="Scenario, machine, graph file, or keys such as 'topology=ring hosts=8'. Default: a 10 Gbit/s star.",
        metavar="NETWORK",
    )
    per_node: int | None = option(
        None,
        help="Ranks per node. Default: as in the cluster if its nodes have several ranks, otherwise all ranks.",
        min=1,
        metavar="N",
    )

    compute: str = option(
        "zero",
        help="Source of compute times: zero (no time), model (roofline of a 100 GFLOP/s core), measured (CPU time of "
        "this machine), or a GPU whose roofline is used, such as 'H100 SXM'.",
        metavar="zero|model|measured|GPU",
    )
    launch: str = option(
        f"{LAUNCH_S * 1e6:g} us",
        help="Host time to launch one GPU operator. 0 us: the host is never the bottleneck.",
        metavar="TIME",
    )
    timing: str = option(
        "auto",
        help="Simulate time while the program runs (live) or in a replay afterwards (recorded). "
        f"auto: live for up to {MOST_LIVE} ranks if the cluster supports it, recorded otherwise.",
        metavar="auto|live|recorded",
    )
    algorithm: list[str] | None = option(
        None,
        help="Algorithm of a collective, such as all_reduce=ring. NAME may also be FILE.py:NAME, auto or nccl. "
        "Repeatable.",
        metavar="COLLECTIVE=NAME",
    )
    timeout: float = option(600.0, help="Stop the program after this much real time.", min=1, metavar="SECONDS")

    acts_as: str | None = option(
        None, "--as", help="Backend whose rules are enforced. Default: the requested backend.", metavar="gloo|nccl"
    )
    gpu: bool = option(False, help="Provide virtual CUDA devices that compute on the CPU.")
    own: list[str] | None = option(
        None, help="Give each rank its own copy of this package's modules. Repeatable.", metavar="PACKAGE"
    )
    fake: bool = option(
        False, help="Run with FakeTensors: shapes and dtypes without data, so that models of any size fit."
    )
    only: str | None = option(
        None,
        help="With --fake: run only these ranks, including 0. Every other rank copies the nearest lower rank.",
        metavar="0,32",
    )
    strict: bool = option(
        False,
        help="Also report errors that may be intended: equal batches without a DataLoader, summed losses with Adam.",
    )


@dataclass(frozen=True)
class FileOptions:
    """The options for the files that a run on virtual ranks writes."""

    trace: Path | None = option(None, help="Write all messages as a trace for `ringlab animate`.", metavar="FILE")
    recording: Path | None = option(None, help="Write a recording for `ringlab replay`.", metavar="FILE")


@with_groups
def command(
    program: Annotated[list[str], typer.Argument(metavar="SCRIPT [ARGS]...", help="Script to run and its arguments.")],
    module: Annotated[bool, Option("-m", help="Treat SCRIPT as a module, as python -m does.")] = False,
    *,
    options: ProgramOptions,
    files: FileOptions,
    json_to: JsonOpt = None,
) -> None:
    """Run an unmodified torch.distributed program on virtual ranks. Report its times, waits, hangs and silent errors.

    Tensors contain real data, but time is simulated. Put Ringlab's options before SCRIPT, or directly after it if
    SCRIPT comes first. All other options, and everything after --, belong to the script.
    """
    check_outputs(json_to, files.trace, files.recording)
    words = program[1 + (program[1:2] == ["--"]) :]
    request = _make_options(UserProgram(program[0], tuple(words), is_module=module), options)
    if not request.program.is_module:
        request.program.compile()  # report a mistyped name before torch is imported
    check_torch()
    to_stderr: Show = lambda stream, text: show_on_own("stderr", text)  # noqa: E731
    answer = run_virtually(request, options.timeout, to_stderr if json_to == "-" else show_on_own)
    deliver(answer, json_to, *answer.writers(files))
    if answer.findings:
        raise typer.Exit(1)


def run_virtually(options: VirtualOptions, timeout: float, show: Show) -> VirtualAnswer:
    """Run a program on virtual ranks and return the result.

    Raise InputError if an option is invalid, and RunFailed if the run does not finish within ``timeout`` seconds.
    """
    is_of_this_machine = options.compute == "measured" and options.cluster.performance_model == "measured"
    with watch_load() if is_of_this_machine else nullcontext() as watch, VirtualHost() as host:
        finished = host.run(options, timeout=timeout, show=show)
    return VirtualAnswer.of(finished, options, watch.share_of_others() if watch is not None else None)


def _make_options(program: UserProgram, request: ProgramOptions) -> VirtualOptions:
    cluster = choose_cluster(request.on, request.ranks)
    machines = cluster.machines()
    on_first = machines.count(machines[0])
    unchanged = ("compute", "timing", "acts_as", "gpu", "strict", "fake")
    return VirtualOptions(
        program,
        request.ranks,
        cluster,
        per_node=request.per_node or (on_first if request.ranks and on_first > 1 else None),
        launch_s=parse_latency(request.launch),
        own=frozenset(request.own or ()),
        only=_numbers(request.only) if request.only else (),
        algorithms=read_algorithms(request.algorithm or ()),
        **{name: getattr(request, name) for name in unchanged},
    )


def choose_cluster(word: str | None, ranks: int) -> Cluster:
    """Return the cluster that ``--on`` names. Default: a star with ``ranks`` ranks, or 64 ranks if ``ranks`` is 0.

    Raise InputError if ``word`` names no network, or one of its keys is invalid.
    """
    return star(ranks or USUAL, "10 Gbit/s", "5 us") if word is None else read_network(word, ranks).cluster


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError as error:
        raise InputError(
            f"--only must be ranks separated by commas, such as 0,32, not {make_printable(text)}"
        ) from error
