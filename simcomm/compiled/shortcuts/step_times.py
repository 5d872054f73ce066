"""When each message of a max-plus run began and ended, and each computing: from the times at which ranks come to steps.

Nothing is written down for it but when each rank comes to each step; all else is arithmetic on whole arrays.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from collectives.records.messages import Message, Messages
from collectives.records.spans import Span, Spans
from collectives.schedule.symmetric import SymmetricSchedule
from simcomm.compiled.kernel.arrays import Bools, Floats, LongInts
from simcomm.compiled.planning.routes import Routes
from simcomm.compiled.planning.schedule_plan import ChunkSizes
from simcomm.compiled.shortcuts.max_plus import Rows, StepJitter, advance_by_steps, channel_costs, written_out
from simcomm.model.trouble import Trouble

Columns = dict[str, npt.NDArray[Any]]


class LegTimes(NamedTuple):
    """What took one rank time in a step: its messages, those that it sends first, and then its computing."""

    row: LongInts
    src: LongInts  # of a message; of computing the rank
    dst: LongInts
    begin: Floats
    end: Floats


class StepRun:
    """A max-plus run of which it is known when each rank comes to each step; all else follows where it is asked for."""

    def __init__(self, channels: "Sequence[ChannelRun]") -> None:
        self.channels = channels
        self.finished: Floats = np.max([channel.begun[-1] for channel in self.channels], axis=0)  # [ranks]: seconds

    def messages(self) -> Messages:
        """Return all messages, without routes and in no order."""
        return Messages(**_joined([channel.messages() for channel in self.channels]))

    def computing(self) -> Spans:
        """Return what took the ranks time beside messages, in no order."""
        parts = [channel.computing() for channel in self.channels]
        return Spans(("reduce",), name=np.zeros(sum(len(each["rank"]) for each in parts)), **_joined(parts))


def _joined(parts: list[Columns]) -> Columns:
    return parts[0] if len(parts) == 1 else {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


class ChannelRun:
    """A channel of all ranks in one run; arrays are [steps or rows, ranks]."""

    def __init__(
        self,
        cyclic: SymmetricSchedule,
        channel: int,
        routes: Routes,
        sizes: ChunkSizes,
        starts: Floats | None,
        trouble: Trouble,
        index: int,
    ) -> None:
        p = cyclic.world_size
        self.channel, self.index, self.stride = channel, index, cyclic.stride
        self.rows, self.costs = channel_costs(cyclic, channel, routes, sizes)
        self.jitter = StepJitter(cyclic, channel, trouble, index)
        steps = len(self.rows.first) - 1
        self.step = np.repeat(np.arange(steps), np.diff(self.rows.first))  # of each row
        self._known: tuple[int, Floats, Floats] | None = None
        self.begun = np.empty((steps + 1, p))  # when each rank comes to each step, and ends
        self.begun[0] = 0.0 if starts is None else starts
        times = self.begun[0].copy()
        self.late = np.zeros((len(self.step) if trouble.messages else 0, p))  # seconds, of rows that are messages
        for step, late in advance_by_steps(times, self.rows, written_out(self.costs), self.jitter):
            self.begun[step + 1] = times
            if trouble.messages:
                first = self.rows.first[step]
                self.late[first : first + len(late)] = late  # a step's messages stand before its computing

    def messages(self) -> Columns:
        """Return the columns of the messages that are sent."""
        sends = np.flatnonzero(self.rows.sends)
        src, dst = self._ends(sends)
        posted = self.begun[self.step[sends]]
        dst_posted = np.take_along_axis(posted, dst, axis=1)
        nbytes, end = self.nbytes(sends), self._arrivals(sends, dst)
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
        slower = {step: self.slower(step) for step in np.unique(self.step[works]).tolist()}
        seconds = self.costs.gamma * self.nbytes(works)
        seconds *= np.array([slower[step] for step in self.step[works].tolist()]).reshape(seconds.shape)
        begin, now = np.empty_like(seconds), self._through() if len(works) else self.begun
        nth = works - self.rows.first[self.step[works]]
        for each in np.unique(nth).tolist():
            at = np.flatnonzero(nth == each)
            begin[at] = now[self.step[works[at]]]
            now[self.step[works[at]]] += seconds[at]
        columns = {"begin": begin, "end": begin + seconds, "rank": np.broadcast_to(np.arange(len(now.T)), begin.shape)}
        columns |= {"step": np.broadcast_to(self.rows.step[works][:, None], begin.shape)}
        return self._said(columns, seconds > 0)

    def legs(self, rank: int, step: int) -> Iterator[Message | Span]:
        """Yield what one rank did in a step, without routes: its messages, and what it computed after them."""
        rows, now = self._plain_rows, self.begun.item(step, rank)
        here = range(rows.first[step], rows.first[step + 1])
        for row in here:
            if rows.sends[row]:
                for src in (rank, (rank - rows.away[row]) % self.begun.shape[1]):
                    message = self._message(row, src)
                    if message.nbytes > 0:
                        yield message
                        now = max(now, message.end)
        for row in here:
            if not rows.sends[row] and self.costs.gamma > 0:
                seconds = self.costs.gamma * self._bytes(row, rank) * self.slower(step).item(rank)
                if seconds > 0:
                    yield Span(rank, "reduce", rows.step[row], now, now + seconds, self.channel, self.index)
                now += seconds

    def leg_times(self, rank: int, step: int) -> LegTimes:
        """Return the times of what ``legs`` yields, in its order but for messages; quicker where there are many."""
        rows = np.arange(self.rows.first[step], self.rows.first[step + 1])
        sends, works = rows[self.rows.sends[rows]], rows[~self.rows.sends[rows]]
        ends, nbytes = self._arrivals_of(step, sends)
        p, away, begun = len(self.begun.T), self.rows.away[sends], self.begun[step]
        src = np.concatenate([np.full(len(sends), rank), (rank - away) % p])
        row, at = np.tile(sends, 2), np.tile(np.arange(len(sends)), 2)
        some = nbytes[at, src] > 0
        row, src, end = row[some], src[some], ends[at, src][some]
        dst = (src + self.rows.away[row]) % p
        begin = np.maximum(begun[src], begun[dst])
        seconds = self.costs.gamma * self.nbytes(works)[:, rank]
        if seconds.any():
            seconds = seconds * self.slower(step)[rank]
            now = np.cumsum([end.max(initial=begun[rank]), *seconds])
            works, begins, done = works[seconds > 0], now[:-1][seconds > 0], now[1:][seconds > 0]
            row, begin, end = np.append(row, works), np.append(begin, begins), np.append(end, done)
            src, dst = (np.append(ranks, np.full(len(works), rank)) for ranks in (src, dst))
        return LegTimes(row, src, dst, begin, end)

    def leg(self, times: LegTimes, at: int) -> Message | Span:
        """Return one leg, without its route."""
        row, src = int(times.row[at]), int(times.src[at])
        if self.rows.sends[row]:
            return self._message(row, src)
        span = float(times.begin[at]), float(times.end[at])
        return Span(src, "reduce", self._plain_rows.step[row], *span, self.channel, self.index)

    def _arrivals_of(self, step: int, sends: LongInts) -> tuple[Floats, Floats]:
        """Return when the messages of a step are through, and their bytes; [rows, ranks]. One step is kept."""
        if self._known is None or self._known[0] != step:
            self._known = step, self._arrivals(sends, self._ends(sends)[1]), self.nbytes(sends)
        return self._known[1:]

    def _message(self, row: int, src: int) -> Message:
        """Return the message of a row that a rank sends; it takes the same sums as in ``max_plus``."""
        rows, costs, nbytes, p = self._plain_rows, self.costs, self._bytes(row, src), self.begun.shape[1]
        dst, step, route = (src + rows.away[row]) % p, self.step.item(row), rows.route[row]
        posted = self.begun.item(step, src), self.begun.item(step, dst)
        begin = max(posted)
        end = begin + costs.delay.item(route, src) + nbytes / costs.rate.item(route, src)
        end += self.late.item(row, src) if len(self.late) else 0.0
        chunk = rows.base[row] + ((rows.shift[row] + src) % p * int(self.stride) if rows.is_shifted[row] else 0)
        of = {"channel": self.channel, "collective": self.index, "src_posted": posted[0], "dst_posted": posted[1]}
        return Message(src, dst, rows.step[row], chunk, int(nbytes), begin, end, **of)

    def _bytes(self, row: int, rank: int) -> float:
        return float(self.costs.nbytes.item(self._plain_rows.at[row] + rank * self._plain_rows.is_shifted[row]))

    @cached_property
    def _plain_rows(self) -> Any:
        """The rows as lists, which give single entries several times as fast as arrays."""
        return Rows(*(column.tolist() for column in self.rows))

    def _through(self) -> Floats:
        """Return when the last message of each rank in each step is through; [steps, ranks]."""
        sends = np.flatnonzero(self.rows.sends)
        _, dst = self._ends(sends)
        arrived = np.where(self.nbytes(sends) > 0, self._arrivals(sends, dst), -np.inf)
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
        end = start + self.costs.delay[route] + self.nbytes(sends) / self.costs.rate[route]
        return end + self.late[sends] if len(self.late) else end

    def nbytes(self, rows: LongInts) -> Floats:
        """Return the bytes of rows on each rank."""
        ranks = np.arange(len(self.begun.T))
        return self.costs.nbytes[self.rows.at[rows, None] + ranks * self.rows.is_shifted[rows, None]]

    def slower(self, step: int) -> Floats:
        """Return how many times as long each rank computes in a step; [ranks]."""
        return self.jitter.slowdowns(int(self.rows.step[self.rows.first[step]]))

    def _said(self, columns: Columns, which: Bools) -> Columns:
        """Return some entries of columns, and whose they are."""
        number = np.count_nonzero(which)
        is_all = number == which.size
        found = {name: column.reshape(-1) if is_all else column[which] for name, column in columns.items()}
        return found | {name: np.full(number, getattr(self, what)) for name, what in NAMES.items()}


NAMES = {"channel": "channel", "collective": "index"}
