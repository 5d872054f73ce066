"""Run a program on virtual ranks in this process, which should exit afterwards: parts of torch stay modified."""

import gc
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import pairwise
from types import MappingProxyType

import torch

from collectives.quoting import make_printable
from replay.recording import Recording
from replay.simulation.repeated_ranks import find_models, repeat_ranks
from replay.simulation.replay import find_carrier
from virtual.computing.choice import choose_computing
from virtual.diagnosis.hangs import ProgramDiagnoser
from virtual.gpus.device import VirtualDevices
from virtual.gpus.renaming import CudaOnCpu
from virtual.options import VirtualOptions
from virtual.outcome import Finished, JobOutcome, RankOutcome, VirtualOutcome, mark_failure
from virtual.process.clocks import install_clocks
from virtual.process.groups import GroupMaker, install_stores
from virtual.process.interpreter import install_interpreter
from virtual.process.output import RankedOutput
from virtual.process.profiles import install_profiles
from virtual.process.programs import name_as_torchrun
from virtual.process.real_processes import install_real_processes
from virtual.process.replaced import Replaced
from virtual.process.shared_objects import install_shared_objects
from virtual.process.spawning import Spawner, install_elastic
from virtual.ranks.finding import STARTER, ProgramFinding
from virtual.ranks.own_state import Belongings, OwnState
from virtual.ranks.placement import Placement
from virtual.ranks.rank import Rank, RankJob
from virtual.ranks.timing import CallTiming
from virtual.ranks.world import VirtualWorld
from virtual.timing.live import LiveTiming
from virtual.watching.everything import tell_silent, watch_program
from virtual.watching.observed import ProgramObserver


class VirtualRun:
    """Runs a program once on virtual ranks, with functions of torch and Python replaced."""

    def __init__(self, options: VirtualOptions) -> None:
        self.options = options
        self.timing = _make_timing(options)
        self.computing = choose_computing(
            options.compute, options.launch_s if options.gpu and options.launch_s else None
        )
        belongings = Belongings(options.program.folder, options.own)
        self.world = VirtualWorld(self.timing, ProgramDiagnoser(), self.computing, belongings)
        self.world.watch = watch_program(options.fake, options.strict)
        self.placement = Placement(self.world, options.local_ranks) if options.gpu else None
        self.replaced = Replaced(self.world.me)
        self._outputs: list[RankedOutput] = []

    def run(self) -> Finished:
        """Run the program to its end or its first error, and return the result."""
        program, begin = self.options.program, time.perf_counter()
        if not program.is_module:
            _ = program.code  # report errors in the script before anything runs
        torch.set_num_threads(1)
        if self.options.compute == "measured":
            import_module("torch._dynamo")  # otherwise only the first rank would pay for DDP's import of it
        if hasattr(os, "sched_setaffinity"):  # a second core would slow down the hand-over of the run token
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        self._install()
        gc.freeze()  # torch's modules are never garbage, and slow to scan
        try:
            self._add_ranks()
            self.world.run()
        finally:
            self.replaced.restore()
        for output in self._outputs:
            output.end()
        return self._finish(time.perf_counter() - begin)

    def _install(self) -> None:
        world, options, replaced = self.world, self.options, self.replaced
        GroupMaker(world, options, self.placement).install(replaced)
        install_stores(world, replaced)
        install_clocks(world, replaced)
        install_profiles(world, replaced)
        if self.placement is not None:
            VirtualDevices(world, options.compute, self.placement).install(replaced)
            classes = import_module("virtual.gpus.classes")  # importing it takes half as long as importing torch
            classes.install_classes(replaced, self.placement)
        if options.fake:
            fake_tensors = import_module("virtual.process.fake_tensors")  # it imports DTensor
            fake_tensors.install_fake_tensors(world, replaced, options.gpu)
        ProgramObserver(world, replaced).install()
        install_interpreter(world, replaced)
        install_real_processes(world, replaced)
        spawner = Spawner(world, options.program, self.start)
        spawner.install(replaced)
        if not options.ranks:  # otherwise no program launches, and the import takes 50 ms
            install_elastic(spawner, replaced)
        install_shared_objects(world, replaced)
        for name in ("stdout", "stderr"):
            self._outputs.append(RankedOutput(getattr(sys, name), world, name))
            replaced.put(sys, name, self._outputs[-1])
        replaced.put(sys, "path", [options.program.folder, *sys.path])
        replaced.put(sys, "argv", options.program.argv)
        replaced.put(sys, "excepthook", sys.excepthook)  # c10d adds one for each rank
        replaced.put(os.environ, "_data", dict(os.environ._data))  # type: ignore[attr-defined]

    def _add_ranks(self) -> None:
        job, ranks, per_node = self.world.new_job(), self.options.ranks, self.options.local_ranks
        job.only = self.options.only
        for number in job.only or (range(ranks) if ranks else [STARTER]):
            variables = name_as_torchrun(number, ranks, per_node) if ranks else {}
            self.start(job, number, lambda _: self.options.program.run(), variables, max(0, number) % per_node)

    def start(
        self,
        job: RankJob,
        number: int,
        run: Callable[[Rank], object],
        variables: Mapping[str, str] = MappingProxyType({}),
        local: int | None = None,
    ) -> Rank:
        """Add a rank that calls ``run``. It inherits the caller's arguments and environment, plus ``variables``."""
        more = {os.fsencode(name): os.fsencode(text) for name, text in variables.items()}
        state = OwnState(os.environ._data | more, list(sys.argv), list(sys.path))  # type: ignore[attr-defined]
        rank = Rank(number, job, partial(self._run_rank, run), state, number if local is None else local)
        self.world.add(rank)
        return rank

    def _run_rank(self, run: Callable[[Rank], object], rank: Rank) -> None:
        with self._data(), self.computing.counting(rank), self._devices():
            try:
                run(rank)
            except SystemExit as end:
                if end.code not in (None, 0):
                    if rank.number == STARTER and self.world.findings:
                        return
                    raise
            self._forget_caught(rank)

    def _forget_caught(self, rank: Rank) -> None:
        caught = [job.finding for job in self.world.jobs if job.raised_in is rank]
        self.world.findings = [
            finding for finding in self.world.findings if finding.kind != "exception" or finding not in caught
        ]

    def _devices(self) -> AbstractContextManager[object]:
        return nullcontext() if self.placement is None else CudaOnCpu(self.placement)

    def _data(self) -> AbstractContextManager[object]:
        if not self.options.fake:
            return nullcontext()
        mode: AbstractContextManager[object] = import_module("virtual.process.fake_tensors").RankFakeMode()
        return mode

    def _findings(self) -> tuple[ProgramFinding, ...]:
        silent = [finding for job in self.world.jobs for finding in tell_silent(self.world.watch, job)]
        for name, error in self.world.watch.broken.items():  # an internal error, not the program's
            sys.stderr.write(f"ringlab: internal error in the check {name}: {type(error).__name__}: {error}\n")
        return (*self.world.findings, *silent)

    def _finish(self, seconds: float) -> Finished:
        title, timing = make_printable(self.options.program.title), self.timing
        recordings = tuple(_recording(job) for job in self.world.jobs)
        jobs = tuple(_job_outcome(*both) for both in zip(self.world.jobs, recordings, strict=True))
        elapsed = max((job.elapsed for job in jobs), default=0.0)
        trace = timing.simulation.trace(title, elapsed) if isinstance(timing, LiveTiming) else None
        if trace is not None and self.world.findings:
            trace = mark_failure(trace, self.world.findings[0])
        outcome = VirtualOutcome(title, jobs, trace is not None, self._findings(), seconds)
        return Finished(outcome, recordings, trace)


def _make_timing(options: VirtualOptions) -> CallTiming:
    if not options.is_live:
        return CallTiming()
    return LiveTiming(find_carrier(options.cluster, options.algorithms))


def _recording(job: RankJob) -> Recording | None:
    if job.recorder is None or job.finding is not None:
        return None
    recording: Recording = job.recorder.recording(job.ranks)
    return (
        repeat_ranks(recording, find_models(job.only, recording.world_size), job.made_groups) if job.only else recording
    )


def _job_outcome(job: RankJob, recording: Recording | None) -> JobOutcome:
    ranks = tuple(RankOutcome(rank.number, rank.clock, rank.computed, rank.waited) for rank in job.ranks)
    if job.only and recording is not None:
        by_number = {outcome.number: outcome for outcome in ranks}
        models = find_models(job.only, recording.world_size)
        ranks = tuple(replace(by_number[model], number=number) for number, model in enumerate(models))
    steps = tuple(after - before for rank in job.ranks for before, after in pairwise(rank.step_ends))
    has_called = any(rank.history for rank in job.ranks)
    return JobOutcome(ranks, job.finding, recording is not None, job.recorder is not None, has_called, steps)
