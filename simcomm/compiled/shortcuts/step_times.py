"""When each message of a max-plus run began and ended, and each computing: from the times at which ranks come to steps.

Nothing is written down for it but when each rank comes to each step; all else is arithmetic on whole arrays.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from collectives.records.messages import Messages
from collectives.records.spans import Spans
from collectives.schedule.cyclic import CyclicSchedule
from simcomm.compiled.kernel.arrays import Bools, Floats, LongInts
from simcomm.compiled.planning.routes import Routes
from simcomm.compiled.planning.schedule_plan import ChunkSizes
from simcomm.compiled.shortcuts.max_plus import (
    RingCosts,
    Rows,
    StepJitter,
    advance_by_steps,
    channel_costs,
    written_out,
)
from simcomm.model.trouble import Trouble

Columns = dict[str, npt.NDArray[Any]]


class StepTimes(NamedTuple):
    """When the ranks end, and what they were busy with: messages without routes, in no order, and computing."""

    finished: Floats  # [ranks]: seconds
    messages: Messages
    computing: Spans


def step_times(
    cyclic: CyclicSchedule,
    routes: Routes,
    sizes: ChunkSizes,
    starts: Floats | None,
    trouble: Trouble,
    index: int,
) -> StepTimes:
    """Return what ``max_plus`` does, with the times of every message and of every computing."""
    ends, messages, computing = list[Floats](), list[Columns](), list[Columns]()
    for channel in range(cyclic.channels):
        run = _Channel(cyclic, channel, routes, sizes, starts, trouble, index)
        ends.append(run.begun[-1])
        messages.append(run.messages())
        computing.append(run.computing())
    spans = Spans(("reduce",), name=np.zeros(sum(len(each["rank"]) for each in computing)), **_joined(computing))
    return StepTimes(np.max(ends, axis=0), Messages(**_joined(messages)), spans)


def _joined(parts: list[Columns]) -> Columns:
    return parts[0] if len(parts) == 1 else {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


class _Channel:
    """A channel of all ranks in one run; arrays are [steps or rows, ranks]."""

    def __init__(
        self,
        cyclic: CyclicSchedule,
        channel: int,
        routes: Routes,
        sizes: ChunkSizes,
        starts: Floats | None,
        trouble: Trouble,
        index: int,
    ) -> None:
        p = cyclic.world_size
        self.channel, self.index, self.stride, self.itemsize = channel, index, cyclic.stride, sizes.itemsize
        self.rows, self.costs = channel_costs(cyclic, channel, routes, sizes)
        steps = len(self.rows.first) - 1
        self.step = np.repeat(np.arange(steps), np.diff(self.rows.first))  # of each row
        self.begun = np.empty((steps + 1, p))  # when each rank comes to each step, and ends
        self.begun[0] = 0.0 if starts is None else starts
        self.late, self.slower = np.zeros((len(self.step), p)), np.ones((steps, p))
        times, jitter = self.begun[0].copy(), StepJitter(cyclic, channel, trouble, index)
        for step, late, slower in advance_by_steps(times, self.rows, written_out(self.costs), jitter):
            first = self.rows.first[step]
            self.late[first : first + len(late)] = late  # a step's messages stand before its computing
            self.slower[step] = slower
            self.begun[step + 1] = times
        self.nbytes = _nbytes(self.rows, self.costs, p)

    def messages(self) -> Columns:
        """Return the columns of the messages that are sent."""
        sends = np.flatnonzero(self.rows.sends)
        src, dst = self._ends(sends)
        posted = self.begun[self.step[sends]]
        dst_posted = np.take_along_axis(posted, dst, axis=1)
        nbytes, end = self.nbytes[sends], self._arrivals(sends, dst)
        chunk = self.rows.base[sends][:, None] + np.where(
            self.rows.is_shifted[sends][:, None], (self.rows.shift[sends][:, None] + src) % len(src) * self.stride, 0
        )
        columns = {"src": np.broadcast_to(src, dst.shape), "dst": dst, "chunk": chunk}
        columns |= {"nbytes": nbytes.astype(np.int64), "end": end, "src_posted": posted, "dst_posted": dst_posted}
        columns |= {"step": np.broadcast_to(self.rows.step[sends][:, None], dst.shape)}
        return self._said(columns, nbytes > 0)

    def computing(self) -> Columns:
        """Return the columns of what takes the ranks time: reductions and copies, one after the other in a step."""
        works = np.flatnonzero(~self.rows.sends & (self.costs.gamma > 0))
        seconds = self.costs.gamma * self.nbytes[works] * self.slower[self.step[works]]
        begin, now = np.empty_like(seconds), self._through() if len(works) else self.begun
        nth = works - self.rows.first[self.step[works]]
        for each in np.unique(nth).tolist():
            at = np.flatnonzero(nth == each)
            begin[at] = now[self.step[works[at]]]
            now[self.step[works[at]]] += seconds[at]
        columns = {"begin": begin, "end": begin + seconds, "rank": np.broadcast_to(np.arange(len(now.T)), begin.shape)}
        columns |= {"step": np.broadcast_to(self.rows.step[works][:, None], begin.shape)}
        return self._said(columns, seconds > 0)

    def _through(self) -> Floats:
        """Return when the last message of each rank in each step is through; [steps, ranks]."""
        sends = np.flatnonzero(self.rows.sends)
        _, dst = self._ends(sends)
        arrived = np.where(self.nbytes[sends] > 0, self._arrivals(sends, dst), -np.inf)
        received = np.empty_like(arrived)
        np.put_along_axis(received, dst, arrived, axis=1)
        found, nth = self.begun[:-1].copy(), sends - self.rows.first[self.step[sends]]
        for each in np.unique(nth).tolist():
            at = np.flatnonzero(nth == each)
            step = self.step[sends[at]]
            found[step] = np.maximum(found[step], np.maximum(arrived[at], received[at]))
        return found

    def _ends(self, sends: LongInts) -> tuple[LongInts, LongInts]:
        """Return the sender [ranks] and the receiver [rows, ranks] of messages."""
        src = np.arange(len(self.begun.T))
        return src, (src + self.rows.away[sends][:, None]) % len(src)

    def _arrivals(self, sends: LongInts, dst: LongInts) -> Floats:
        """Return when messages are through; [rows, ranks]. The same sums as ``max_plus`` makes, in the same order."""
        posted, route = self.begun[self.step[sends]], self.rows.route[sends]
        start = np.maximum(posted, np.take_along_axis(posted, dst, axis=1))
        return start + self.costs.delay[route] + self.nbytes[sends] / self.costs.rate[route] + self.late[sends]

    def _said(self, columns: Columns, which: Bools) -> Columns:
        """Return some entries of columns, and whose they are."""
        number = np.count_nonzero(which)
        is_all = number == which.size
        found = {name: column.reshape(-1) if is_all else column[which] for name, column in columns.items()}
        return found | {name: np.full(number, getattr(self, what)) for name, what in NAMES.items()}


NAMES = {"channel": "channel", "collective": "index"}


def _nbytes(rows: Rows, costs: RingCosts, p: int) -> Floats:
    """Return the bytes of each row on each rank; [rows, ranks]."""
    return costs.nbytes[rows.at[:, None] + np.arange(p) * rows.is_shifted[:, None]]
