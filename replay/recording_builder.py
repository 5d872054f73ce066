"""Build a recording call by call."""

from collections import Counter
from collections.abc import Hashable
from functools import partialmethod
from typing import Any, NamedTuple, TypeVar

import numpy as np

from replay.recording import (
    CallKind,
    Did,
    ExecutionStream,
    LogEntries,
    Mark,
    RankGroup,
    RecordedCall,
    RecordedCalls,
    Recording,
    SourceLine,
)

Name = TypeVar("Name", bound=Hashable)
UNKNOWN = SourceLine("", 0)
STEP = "step"  # mark of a training step, from the end of one optimizer step to the end of the next
WORLD = "world"  # the default name of a group


class Numbers(dict[Name, int]):
    """A dict that numbers missing names from 0, in order of first use."""

    def __missing__(self, name: Name) -> int:
        self[name] = number = len(self)
        return number


class RecordedCollective(NamedTuple):
    """The properties of a collective that all ranks of its group share.

    ``elements`` counts the larger buffer: the output of an all_gather, the input of a reduce_scatter.
    """

    verb: str  # "all_reduce"
    ranks: tuple[int, ...]  # global ranks, in the order of the group
    elements: int
    itemsize: int = 4
    dtype: str = "float32"
    op: str = "sum"
    root: int = 0  # a group rank
    group: str = WORLD


class RecordingBuilder:
    """Builds a Recording: add calls, then log when each stream starts a call and waits for it.

    All parts of a collective share a key, which can be any hashable value. A send and its receive also share a key. The
    host stream of a rank has the same number as the rank.

    >>> builder = RecordingBuilder("exchange.py", world_size=2)
    >>> there = builder.send(0, 1, 64, key="hello")
    >>> builder.post(0, there), builder.wait(0, there)
    (None, None)
    >>> here = builder.recv(1, 0, 64, key="hello")
    >>> builder.post(1, here, seconds=0.5), builder.wait(1, here)
    (None, None)
    >>> builder.recording().computed().tolist()
    [0.0, 0.5]
    """

    def __init__(self, title: str, world_size: int, where: str = "virtual") -> None:
        self.title, self.world_size, self.where = title, world_size, where
        self.notes: list[str] = []
        self._calls: list[RecordedCall] = []
        self._streams = [ExecutionStream(rank, "host") for rank in range(world_size)]
        self._logs: list[list[tuple[int, int, float, float]]] = [[] for _ in range(world_size)]
        self._keys, self._groups = Numbers[Any](), Numbers[RankGroup]()
        self._verbs, self._dtypes, self._ops = Numbers[str](), Numbers[str](), Numbers[str]()
        self._lines, self._locations = Numbers[str]({"": 0}), Numbers[SourceLine]({UNKNOWN: 0})
        self._marks, self._signals = Numbers[Mark](), Numbers[Any]()
        self._times = Counter[Hashable]()

    def stream(self, rank: int, name: str) -> int:
        """Add a stream to a rank, such as a compute stream of its GPU, and return the stream's number."""
        self._streams.append(ExecutionStream(rank, name))
        self._logs.append([])
        return len(self._streams) - 1

    def collective(
        self,
        rank: int,
        key: Hashable,
        collective: RecordedCollective,
        *,
        line: str = "",
        location: SourceLine = UNKNOWN,
    ) -> int:
        """Add a rank's part of a collective, and return its call number.

        ``line`` names a communicator that runs its calls one after the other, as in NCCL. It is "" if the group's calls
        may overlap.
        """
        call = RecordedCall(
            rank=rank,
            kind=CallKind.COLLECTIVE,
            key=self._keys[key],
            nbytes=collective.elements * collective.itemsize,
            verb=self._verbs[collective.verb],
            group=self._groups[RankGroup(collective.group, collective.ranks)],
            elements=collective.elements,
            dtype=self._dtypes[collective.dtype],
            itemsize=collective.itemsize,
            op=self._ops[collective.op],
            root=collective.root,
            line=self._lines[line],
            location=self._locations[location],
        )
        return self._add(call)

    def _message(
        self,
        kind: CallKind,
        rank: int,
        peer: int,
        nbytes: int,
        *,
        key: Hashable,
        tag: int = 0,
        line: str = "",
        location: SourceLine = UNKNOWN,
    ) -> int:
        """Add a send or a receive between the global ranks ``rank`` and ``peer``, and return its call number."""
        numbers = {"key": self._keys[key], "line": self._lines[line], "location": self._locations[location]}
        return self._add(RecordedCall(rank, kind, nbytes=nbytes, peer=peer, tag=tag, **numbers))

    send = partialmethod(_message, CallKind.SEND)
    recv = partialmethod(_message, CallKind.RECV)

    def meet(self, sender: int, receiver: int) -> None:
        """Match a receive to a send, given their call numbers. The receive gets the send's key, rank and tag."""
        sent = self._calls[sender]
        self._calls[receiver] = self._calls[receiver]._replace(key=sent.key, peer=sent.rank, tag=sent.tag)

    def in_order(self, caller: Hashable, *name: Hashable) -> Hashable:
        """Return a key for the caller's next call of ``name``. The k-th calls of all callers share the k-th key."""
        self._times[caller, name] += 1
        return name, self._times[caller, name]

    def _add(self, call: RecordedCall) -> int:
        self._calls.append(call)
        return len(self._calls) - 1

    def post(self, stream: int, call: int, seconds: float = 0.0, took: float = 0.0) -> None:
        """Log that a stream starts a call, after computing for ``seconds`` since its previous entry.

        ``took`` is the time in seconds that starting the call took in a real run.
        """
        self._logs[stream].append((Did.POST, call, seconds, took))

    def wait(self, stream: int, call: int, seconds: float = 0.0, took: float = 0.0) -> None:
        """Log that a stream waits ``took`` seconds for a call, after computing ``seconds`` since its previous entry."""
        self._logs[stream].append((Did.WAIT, call, seconds, took))

    def take_back(self, stream: int) -> float:
        return self._logs[stream].pop()[2]

    def entries(self, stream: int) -> int:
        return len(self._logs[stream])

    def begin(self, stream: int, name: str, step: int = 0, seconds: float = 0.0) -> None:
        """Log the start of a span, such as a training step, after ``seconds`` of computing."""
        self._logs[stream].append((Did.BEGIN, self._marks[Mark(name, step)], seconds, 0.0))

    def end(self, stream: int, name: str, step: int = 0, seconds: float = 0.0) -> None:
        self._logs[stream].append((Did.END, self._marks[Mark(name, step)], seconds, 0.0))

    def signal(self, stream: int, signal: Hashable, seconds: float = 0.0) -> None:
        """Log that a stream sends a signal, like a CUDA event. A signal can be sent only once."""
        self._logs[stream].append((Did.SIGNAL, self._signals[signal], seconds, 0.0))

    def await_signal(self, stream: int, signal: Hashable, seconds: float = 0.0) -> None:
        """Log that a stream waits for a signal, after ``seconds`` of computing."""
        self._logs[stream].append((Did.AWAIT, self._signals[signal], seconds, 0.0))

    def compute(self, stream: int, seconds: float) -> None:
        """Add ``seconds`` of computing to the end of a stream, after its last entry."""
        state = self._streams[stream]
        self._streams[stream] = state._replace(tail=state.tail + seconds)

    def recording(self) -> Recording:
        """Return the recording so far. Raise InputError if it is inconsistent."""
        lengths = [len(log) for log in self._logs]
        table = [entry for log in self._logs for entry in log]
        did, number, seconds, took = zip(*table, strict=True) if table else ([], [], [], [])
        recording = Recording(
            title=self.title,
            where=self.where,
            world_size=self.world_size,
            calls=RecordedCalls.of(self._calls),
            entries=LogEntries(
                stream=np.repeat(np.arange(len(lengths)), lengths),
                did=np.array(did, np.int64),
                number=np.array(number, np.int64),
                seconds=np.array(seconds, np.float64),
                took=np.array(took, np.float64),
            ),
            streams=tuple(self._streams),
            groups=tuple(self._groups),
            verbs=tuple(self._verbs),
            dtypes=tuple(self._dtypes),
            ops=tuple(self._ops),
            lines=tuple(self._lines),
            locations=tuple(self._locations),
            marks=tuple(self._marks),
            notes=tuple(self.notes),
        )
        recording.check()
        return recording
