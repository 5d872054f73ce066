"""Record the operations and waits of a job's ranks."""

from collections import defaultdict
from collections.abc import Callable
from functools import lru_cache

from collectives.quoting import make_printable
from replay.recording import Recording, SourceLine
from replay.recording_builder import STEP, RecordedCollective, RecordingBuilder
from virtual.matching.posted import Posted
from virtual.ranks.rank import Rank
from virtual.ranks.sites import CallSite


class JobRecorder:
    def __init__(self, title: str, world_size: int) -> None:
        self.world_size = world_size
        self._builder = RecordingBuilder(title, world_size)
        self._recorded = [0.0] * world_size  # compute seconds that are recorded, by rank
        self._devices: dict[int, int] = {}  # the device stream of each rank
        self._pending: defaultdict[int, float] = defaultdict(float)  # seconds before the next entry of a stream
        self._halves = self._signals = 0

    def collective(self, call: Posted) -> None:
        """Record a rank's call of a collective. Calls without data, or in a group of one rank, are not recorded."""
        exchange, group = call.exchange, call.group
        elements = call.elements
        if len(group.ranks) < 2 or not elements:
            return
        recorded = RecordedCollective(
            exchange.collective,
            group.ranks,
            elements,
            exchange.dtype.itemsize,
            str(exchange.dtype).removeprefix("torch."),
            exchange.op,
            exchange.root,
            group.name,
        )
        key, line = (id(group), call.number), group.name if group.is_ordered else ""
        self._post(
            call, self._builder.collective(call.rank.number, key, recorded, line=line, location=_line(call.site))
        )

    def message(self, half: Posted) -> None:
        """Record a rank's send or receive. ``meet`` later pairs the send with its receive."""
        rank, group = half.rank.number, half.group
        self._halves += 1
        peer = half.peer_in_world
        add = self._builder.send if half.way == "sends" else self._builder.recv
        line = f"{group.name} {min(rank, peer or 0)}-{max(rank, peer or 0)}" if group.is_ordered else ""
        key = ("half", self._halves)
        other = rank if peer is None else peer
        post = add(rank, other, half.nbytes, key=key, tag=half.tag, line=line, location=_line(half.site))
        self._post(half, post)

    def meet(self, sender: Posted, receiver: Posted) -> None:
        if sender.call is not None and receiver.call is not None:
            self._builder.meet(sender.call, receiver.call)

    def wait(self, posted: Posted) -> None:
        """Record the first wait of a rank for an operation. Later waits are not recorded."""
        if posted.recorded is not None:
            stream, seconds = self._computed(posted.rank)
            self._builder.wait(stream, posted.recorded, seconds)
            posted.recorded = None

    def wait_if_followed(self, posted: Posted, act: Callable[[], object]) -> bool:
        """Set an operation's future by calling ``act``. Return whether the wait for the operation is recorded.

        If ``act`` posts another operation, the wait is recorded before it. If the result is False, call ``wait`` later.
        """
        number = posted.recorded
        if number is None:
            act()
            return True
        self.wait(posted)
        stream = self._stream(posted.rank)
        entries = self._builder.entries(stream)
        act()
        if self._builder.entries(stream) > entries:
            return True
        self._pending[stream] += self._builder.take_back(stream)
        posted.recorded = number
        return False

    def step(self, rank: Rank, number: int) -> None:
        """Record that optimizer step ``number`` ends and the next begins. For step 0, record only the beginning."""
        stream, seconds = self._computed(rank)
        if number:
            self._builder.end(stream, STEP, number, seconds)
            seconds = 0.0
        self._builder.begin(stream, STEP, number + 1, seconds)

    def meet_device(self, rank: Rank) -> None:
        device, seconds = self._computed(rank)
        self._signals += 1
        self._builder.signal(device, self._signals, seconds)
        self._builder.await_signal(rank.number, self._signals, self._pending.pop(rank.number, 0.0))

    def recording(self, ranks: list[Rank]) -> Recording:
        """Return the recording, including the compute of ranks after their last operations."""
        for rank in ranks:
            stream, seconds = self._computed(rank)
            self._builder.compute(stream, seconds)
            self._builder.compute(rank.number, self._pending.pop(rank.number, 0.0))
        return self._builder.recording()

    def _post(self, posted: Posted, number: int) -> None:
        posted.recorded = posted.call = number
        stream, seconds = self._computed(posted.rank)
        self._builder.post(stream, number, seconds)

    def _stream(self, rank: Rank) -> int:
        if rank.launches is None:
            return rank.number
        if rank.number not in self._devices:
            self._devices[rank.number] = self._builder.stream(rank.number, "device")
        return self._devices[rank.number]

    def _computed(self, rank: Rank) -> tuple[int, float]:
        """Return the stream on which a rank computes, and the compute time in seconds since the stream's last entry.

        If the rank has a device, also record that the device waits for the host to launch the operators.
        """
        stream = self._stream(rank)
        if rank.launches is None:
            before, self._recorded[rank.number] = self._recorded[rank.number], rank.computed
            return stream, self._pending.pop(stream, 0.0) + rank.computed - before
        done = rank.launches.take()
        if done.host:
            self._signals += 1
            ahead = done.lead - done.device
            self._builder.signal(rank.number, self._signals, self._pending[rank.number] + ahead)
            self._pending[rank.number] = max(0.0, done.host - ahead)
            self._builder.await_signal(stream, self._signals, self._pending[stream])
            self._pending[stream] = done.device
        return stream, self._pending.pop(stream, 0.0)


@lru_cache(maxsize=4096)
def _line(site: CallSite) -> SourceLine:
    return SourceLine(make_printable(site.file), site.line, make_printable(site.text))
