"""Replay a recording on a cluster: compute when its streams, stages and messages begin and end."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from collectives.checks import check_cluster
from collectives.declaration import Algorithm
from collectives.errors import InputError
from collectives.quoting import quote
from collectives.records.calibration import Calibration, check_calibration
from collectives.records.columns import Floats, Ints
from replay.recording import Did, LogEntries, Recording
from replay.simulation.calls import ReplayedCalls, Segments, find_calls, find_segments
from replay.simulation.carriers import CallClass, MeasuredCarrier, NetworkCarrier, find_classes
from replay.simulation.layout import ReplayLayout, lay_out
from replay.simulation.plan import ReplayedMessages, ReplayPlan, find_messages, make_plan
from replay.simulation.templates import Template
from simcomm.cluster.calibrated import check_used
from simcomm.cluster.cluster import Cluster
from simcomm.compiled.engine import run_kernel
from simcomm.compiled.planning.faults import link_changes
from simcomm.model.faults import NO_FAULTS, Faults, check_faults

World = Any  # the kernel's type; the kernel is slow to import


@dataclass(frozen=True, eq=False)
class ReplayedRun:
    """The result of a replay: the times that the kernel computed for a recording on a cluster."""

    recording: Recording
    segments: Segments
    calls: ReplayedCalls
    carrier: NetworkCarrier
    classes: list[CallClass]
    layout: ReplayLayout
    messages: ReplayedMessages
    planned: ReplayPlan
    faults: Faults
    world: World

    @property
    def cluster(self) -> Cluster:
        return self.carrier.resolved

    @cached_property
    def finished_streams(self) -> Floats:
        """The end time of each stream in seconds, or infinity if the stream never ends."""
        return np.array(self.world.agents["finished"][: len(self.recording.streams)], np.float64)

    @cached_property
    def finished(self) -> Floats:
        """The time when each rank has finished all its streams, in seconds; shape [world_size]."""
        ends = np.zeros(self.recording.world_size)
        np.maximum.at(ends, [stream.rank for stream in self.recording.streams], self.finished_streams)
        return ends

    @property
    def is_complete(self) -> bool:
        return bool(np.isfinite(self.finished_streams).all())

    @cached_property
    def elapsed(self) -> float:
        """Seconds until all ranks have finished and all messages have arrived, or until the last event of a hang."""
        ends = [self.message_end, self.finished_streams]
        if not self.is_complete:
            ends += [self.started, self.work_end]
        return max((float(end[np.isfinite(end)].max(initial=0.0)) for end in ends), default=0.0)

    @property
    def started(self) -> Floats:
        """The start time of each stage in seconds, or nan if the stage never starts."""
        return np.asarray(self.world.started, np.float64)

    @property
    def message_begin(self) -> Floats:
        """The time when each message's send and receive are both posted, in seconds, or nan if this never happens."""
        return np.asarray(self.world.begin[self.planned.signals :], np.float64)

    @property
    def message_end(self) -> Floats:
        """The arrival time of each message in seconds, or nan if the message never arrives."""
        return np.asarray(self.world.end[self.planned.signals :], np.float64)

    @cached_property
    def stage_end(self) -> Floats:
        """The end time of each stage in seconds: nan if it never ends, or infinity if its agent has no later stage."""
        following = self.planned.plan.stages["following"][:-1]
        agents = self.world.agents["finished"][self.planned.plan.stages["agent"][:-1]]
        return np.asarray(np.where(following >= 0, self.started[following], agents), np.float64)

    @property
    def work_end(self) -> Floats:
        """The end time of each compute task in seconds. A task that never ends has nan or infinity."""
        return self.stage_end[self.planned.work.stage]

    @cached_property
    def busy(self) -> Floats:
        """Seconds that each rank computes on its host stream, including reductions; shape [world_size]."""
        work = self.planned.work
        agent = self.planned.plan.stages["agent"][work.stage]
        _, hosts = np.unique([stream.rank for stream in self.recording.streams], return_index=True)
        is_of_rank = np.isin(agent, hosts) & np.isfinite(self.work_end)
        return np.bincount(work.rank[is_of_rank], work.seconds[is_of_rank], self.recording.world_size).astype(
            np.float64
        )


class Replayer:
    """Replays a recording on several clusters, and reuses the work that does not depend on the cluster."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.segments = find_segments(recording)
        self.calls = find_calls(recording, self.segments)

    def on(
        self,
        cluster: Cluster,
        algorithms: Mapping[str, str | Algorithm] | None = None,
        *,
        calibration: Calibration | None = None,
        faults: Faults = NO_FAULTS,
    ) -> ReplayedRun:
        """Replay the recording on a cluster. ``algorithms`` maps collectives to algorithms that replace the defaults.

        Raise InputError if the cluster has a different number of ranks or does not support a call.
        """
        check_cluster(cluster, Cluster)
        ranks = self.recording.world_size
        if cluster.world_size != ranks:
            raise InputError(f"{cluster.title} has {cluster.world_size} ranks, but the recording has {ranks}")
        carrier = find_carrier(cluster, algorithms or {}, calibration)
        check_faults(faults, carrier.resolved.graph, ranks)
        classes = find_classes(self.calls, carrier)
        recording = self.recording
        if carrier.shares_cores and recording.where == "virtual":  # measured times include it
            recording = _charge_messages_to_cores(recording, self.segments, self.calls, classes)
        layout = lay_out(recording, self.segments, self.calls, classes, self._lines(carrier))
        messages = find_messages(self.recording, self.segments, self.calls, (layout, classes), carrier)
        planned = make_plan(layout.stages, messages, carrier, faults)
        changes = link_changes(faults, carrier.resolved.graph, planned.links) if faults.changes_links else ()
        world = run_kernel(planned.plan, planned.links, messages=True, changes=changes)
        return ReplayedRun(
            recording=self.recording,
            segments=self.segments,
            calls=self.calls,
            carrier=carrier,
            classes=classes,
            layout=layout,
            messages=messages,
            planned=planned,
            faults=faults,
            world=world,
        )

    def _lines(self, carrier: NetworkCarrier) -> Ints:
        """Return the number of each call's communicator, or 0 if the call may overlap others."""
        line = np.append(
            self.recording.calls.line, np.zeros(len(self.calls.rank) - len(self.recording.calls), np.int64)
        )
        if not carrier.has_lines:
            return line
        is_collective = self.calls.is_collective
        of_group = self.calls.group[self.calls.collective[is_collective]] + 1 + len(self.recording.lines)
        line[is_collective] = np.where(line[is_collective] > 0, line[is_collective], of_group)
        return line


def replay(
    recording: Recording,
    cluster: Cluster,
    algorithms: Mapping[str, str | Algorithm] | None = None,
    *,
    calibration: Calibration | None = None,
    faults: Faults = NO_FAULTS,
) -> ReplayedRun:
    """Replay a recording on a cluster in virtual time. To replay one recording several times, use ``Replayer``.

    >>> import simcomm
    >>> from replay.recording_builder import RecordedCollective, RecordingBuilder
    >>> builder, both = RecordingBuilder("two.py", 2), RecordedCollective("all_reduce", (0, 1), elements=250_000)
    >>> for rank in range(2):
    ...     call = builder.collective(rank, 0, both)
    ...     builder.post(rank, call, seconds=0.5 * rank)
    ...     builder.wait(rank, call)
    >>> round(replay(builder.recording(), simcomm.star(2, "8 Gbit/s", "1 us")).elapsed, 6)
    0.501004
    """
    if not isinstance(recording, Recording):
        raise InputError(f"recording must be the result of read_recording, not {quote(recording)}")
    if not isinstance(algorithms, Mapping | None):
        raise InputError(f"algorithms must map collectives to algorithm names, not {quote(algorithms)}")
    check_cluster(cluster, Cluster)
    check_used(calibration, [cluster])
    return Replayer(recording).on(cluster, algorithms, calibration=calibration, faults=faults)


def _charge_messages_to_cores(
    recording: Recording, segments: Segments, calls: ReplayedCalls, classes: list[CallClass]
) -> Recording:
    """Return a recording whose compute times include the CPU time of the collectives in flight.

    A message between two processes on one machine uses a core of each. If a rank computes between posting a collective
    and waiting for it, the messages slow down this computation. The recorded compute times do not include this delay.
    """
    entries = recording.entries
    computing = np.flatnonzero(entries.seconds > 0)
    waits = np.flatnonzero(entries.did == Did.WAIT)
    awaited = np.full(len(recording.calls), -1)
    awaited[entries.number[waits[::-1]]] = waits[::-1]  # first waits
    seconds = entries.seconds.copy()
    for call_class in classes:
        if call_class.template is None:
            continue
        parts = np.where(call_class.parts < len(recording.calls), call_class.parts, -1)
        rows, member = np.nonzero((parts >= 0) & (segments.post_entry[parts] >= 0))
        call = parts[rows, member]
        following = np.searchsorted(computing, segments.post_entry[call], side="right")
        meanwhile = following < len(computing)
        following[meanwhile] = computing[following[meanwhile]]
        meanwhile &= following <= awaited[call]  # both belong to one stream
        np.add.at(seconds, following[meanwhile], _busy_seconds(call_class.template)[member[meanwhile]])
    extended = LogEntries(
        stream=entries.stream, did=entries.did, number=entries.number, seconds=seconds, took=entries.took
    )
    return replace(recording, entries=extended)


def _busy_seconds(template: Template) -> Floats:
    """Return the CPU time in seconds of a collective on each rank of its group; shape [ranks]."""
    messages, ranks = template.messages, template.ranks
    receiving = np.bincount(messages.dst, messages.seconds, ranks)
    reducing = np.bincount(template.agent // template.channels, template.cost, ranks)
    return np.asarray(receiving + reducing + template.division, np.float64)


def find_carrier(
    cluster: Cluster, algorithms: Mapping[str, str | Algorithm], calibration: Calibration | None = None
) -> NetworkCarrier:
    """Return the carrier for a cluster's performance model. Raise InputError for an unknown algorithm."""
    make: type[NetworkCarrier] = MeasuredCarrier if cluster.performance_model == "measured" else NetworkCarrier
    if cluster.performance_model == "nccl":
        from replay.simulation.nccl_carrier import NcclCarrier  # slow to import

        make = NcclCarrier
    return make(cluster, check_calibration(calibration), dict(algorithms))
