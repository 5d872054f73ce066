"""A recording on a cluster as the kernel ran it: when streams, ranks, stages and messages began and ended."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from collectives.records.columns import Floats
from collectives.records.recording import Recording
from simcomm.cluster.cluster import Cluster
from simcomm.model.trouble import Trouble
from simcomm.recorded.calls import ReplayedCalls, Segments
from simcomm.recorded.carriers import NetworkCarrier, Way
from simcomm.recorded.layout import ReplayLayout
from simcomm.recorded.plan import ReplayedMessages, ReplayPlan

World = Any  # of the kernel, which is slow to import


@dataclass(frozen=True, eq=False)
class ReplayedRun:
    """A recording on a cluster as the kernel ran it."""

    recording: Recording
    segments: Segments
    calls: ReplayedCalls
    carrier: NetworkCarrier
    ways: list[Way]
    layout: ReplayLayout
    messages: ReplayedMessages
    planned: ReplayPlan
    trouble: Trouble
    world: World

    @property
    def cluster(self) -> Cluster:
        """The cluster that it was replayed on."""
        return self.carrier.resolved

    @cached_property
    def finished_streams(self) -> Floats:
        """Seconds at which each stream ended; infinite where it never does."""
        found: Floats = self.world.agents["finished"][: len(self.recording.streams)].copy()
        return found

    @cached_property
    def finished(self) -> Floats:
        """Seconds at which each rank was through with all of its streams; shape [world_size]."""
        found = np.zeros(self.recording.world_size)
        np.maximum.at(found, [stream.rank for stream in self.recording.streams], self.finished_streams)
        return found

    @property
    def is_complete(self) -> bool:
        """Whether all ranks end."""
        return bool(np.isfinite(self.finished_streams).all())

    @cached_property
    def elapsed(self) -> float:
        """Seconds until all ranks have ended and their messages have arrived; else when the last thing happened."""
        ends = [self.message_end, self.finished_streams]
        if not self.is_complete:
            ends += [self.started, self.work_end]
        return max((float(end[np.isfinite(end)].max(initial=0.0)) for end in ends), default=0.0)

    @property
    def started(self) -> Floats:
        """Seconds at which each stage began; nan where it never did."""
        found: Floats = self.world.started
        return found

    @property
    def message_begin(self) -> Floats:
        """Seconds at which both halves of each message were there; nan where they never were."""
        found: Floats = self.world.begin[self.planned.signals :]
        return found

    @property
    def message_end(self) -> Floats:
        """Seconds at which each message had arrived; nan where it never did."""
        found: Floats = self.world.end[self.planned.signals :]
        return found

    @cached_property
    def stage_end(self) -> Floats:
        """Seconds at which each stage ended; nan or infinite where it never did."""
        following = self.planned.plan.stages["following"][:-1]
        agents = self.world.agents["finished"][self.planned.plan.stages["agent"][:-1]]
        found: Floats = np.where(following >= 0, self.started[following], agents)
        return found

    @property
    def work_end(self) -> Floats:
        """Seconds at which each piece of work ended."""
        found: Floats = self.stage_end[self.planned.work.stage]
        return found

    @cached_property
    def busy(self) -> Floats:
        """Seconds that each rank computed by itself in its first stream, reductions included; shape [world_size]."""
        work = self.planned.work
        agent = self.planned.plan.stages["agent"][work.stage]
        own = (agent < self.recording.world_size) & np.isfinite(self.work_end)
        return np.bincount(work.rank[own], work.seconds[own], self.recording.world_size).astype(np.float64)
