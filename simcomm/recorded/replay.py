"""A recording replayed on a cluster, and what of it can be kept for the next cluster."""

from collections.abc import Mapping

import numpy as np

from collectives.calibration.calibration import Calibration
from collectives.checks import check_cluster
from collectives.errors import InputError
from collectives.records.columns import Ints
from collectives.records.recording import Recording
from simcomm.cluster.cluster import Cluster
from simcomm.compiled.engine import run_kernel
from simcomm.compiled.planning.trouble import link_changes
from simcomm.model.trouble import NO_TROUBLE, Trouble, check_trouble
from simcomm.recorded.calls import find_calls, find_segments
from simcomm.recorded.carriers import NetworkCarrier, find_carrier, find_ways
from simcomm.recorded.layout import lay_out
from simcomm.recorded.plan import find_messages, make_plan
from simcomm.recorded.replayed_run import ReplayedRun


class Replayer:
    """A recording that may be replayed several times: what does not depend on the cluster is worked out once."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.segments = find_segments(recording)
        self.calls = find_calls(recording, self.segments)

    def on(
        self,
        cluster: Cluster,
        algorithms: Mapping[str, str] | None = None,
        *,
        calibration: Calibration | None = None,
        trouble: Trouble = NO_TROUBLE,
    ) -> ReplayedRun:
        """Return the run on a cluster, with algorithms by collective where the default will not do.

        Raises InputError for a cluster of another number of ranks, and for what cannot be carried there.
        """
        check_cluster(cluster, Cluster)
        ranks = self.recording.world_size
        if cluster.world_size != ranks:
            raise InputError(f"{cluster.title} has {cluster.world_size} ranks, and the recording {ranks}")
        carrier = find_carrier(cluster, algorithms or {}, calibration)
        check_trouble(trouble, carrier.resolved.graph, ranks)
        ways = find_ways(self.calls, carrier)
        layout = lay_out(self.recording, self.segments, self.calls, ways, self._lines(carrier))
        messages = find_messages(self.recording, self.segments, self.calls, (layout, ways), carrier)
        planned = make_plan(layout.stages, messages, carrier, trouble)
        changes = link_changes(trouble, carrier.resolved.graph, planned.links) if trouble.links_change else ()
        world = run_kernel(planned.plan, planned.links, messages=True, changes=changes)
        return ReplayedRun(
            recording=self.recording,
            segments=self.segments,
            calls=self.calls,
            carrier=carrier,
            ways=ways,
            layout=layout,
            messages=messages,
            planned=planned,
            trouble=trouble,
            world=world,
        )

    def _lines(self, carrier: NetworkCarrier) -> Ints:
        """Return which calls are done one after the other: as recorded or, where a carrier does so, a group's."""
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
    algorithms: Mapping[str, str] | None = None,
    *,
    calibration: Calibration | None = None,
    trouble: Trouble = NO_TROUBLE,
) -> ReplayedRun:
    """Return a recorded run on a cluster, every message simulated; ``Replayer.on`` does so more than once.

    >>> import simcomm
    >>> from collectives.records.recording_builder import CollectiveCall, RecordingBuilder
    >>> builder, both = RecordingBuilder("two.py", 2), CollectiveCall("all_reduce", (0, 1), elements=250_000)
    >>> for rank in range(2):
    ...     call = builder.collective(rank, 0, both)
    ...     builder.post(rank, call, seconds=0.5 * rank)
    ...     builder.wait(rank, call)
    >>> round(replay(builder.recording(), simcomm.star(2, "8 Gbit/s", "1 us")).elapsed, 6)
    0.501004
    """
    return Replayer(recording).on(cluster, algorithms, calibration=calibration, trouble=trouble)
