"""Store the messages of a Trace as columns, for vectorized computation. Each message is also available as a row."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import nan
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from collectives.checks import MOST_SECONDS
from collectives.records.columns import (
    Column,
    Columnar,
    Floats,
    Ints,
    check_rows,
    column_to_plain,
    first_where,
    read_column,
    take,
)


class Message(NamedTuple):
    """A message between two ranks. It begins when both its send and its receive are posted.

    ``end`` is the time at which the last byte arrives. Times are in seconds. By default, the send and the receive have
    the same step number and the same chunks.

    >>> Message(src=0, dst=1, step=0, chunk=0, nbytes=64, begin=0.0, end=1e-3).route
    ()
    """

    src: int
    dst: int
    step: int  # step of the sender's program on this channel
    chunk: int  # first chunk that is sent
    nbytes: int
    begin: float
    end: float
    route: tuple[str, ...] = ()  # names of the nodes from src to dst; empty if unknown
    channel: int = 0  # channel of both programs
    dst_step: int = -1  # step of the receiver's program; -1: equal to ``step``
    count: int = 1  # type: ignore[assignment]  # number of consecutive chunks
    into: int = -1  # first chunk that is written at the receiver; -1: equal to ``chunk``
    reduces: bool = False  # whether the data is reduced into the chunks instead of overwriting them
    src_posted: float = nan  # time in seconds at which the sender posted the send; nan: ``begin``
    dst_posted: float = nan  # time at which the receiver posted the receive; nan: ``begin``
    collective: int = 0  # number of the collective in the run, or the training step


class MessageRoutes:
    """Routes by number. Route r visits the nodes ``names[node[first[r]:first[r + 1]]]``. Unknown routes are empty.

    >>> MessageRoutes.of([("h0", "s0", "h1"), ()])[0]
    ('h0', 's0', 'h1')
    """

    def __init__(self, first: npt.ArrayLike, node: npt.ArrayLike, names: Sequence[str]) -> None:
        nodes = np.asarray(node, np.int64)
        self.first: Ints = np.asarray(first, np.int64)  # [routes + 1]
        self.node: npt.NDArray[Any] = nodes.astype(np.min_scalar_type(max(0, len(names) - 1)))  # [nodes of all routes]
        self.names = tuple(names)

    @classmethod
    def of(cls, routes: Iterable[Sequence[str]]) -> "MessageRoutes":
        known: dict[str, int] = {}
        numbers = [[known.setdefault(node, len(known)) for node in route] for route in routes]
        flat = [node for route in numbers for node in route]
        return cls(np.cumsum([0, *map(len, numbers)]), np.array(flat, np.int64), tuple(known))

    def __len__(self) -> int:
        return len(self.first) - 1

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MessageRoutes):
            return NotImplemented
        same = self is other or (np.array_equal(self.first, other.first) and np.array_equal(self.node, other.node))
        return same and self.names == other.names

    __hash__ = None  # type: ignore[assignment]

    def __getitem__(self, number: int) -> tuple[str, ...]:
        nodes = self.node[self.first[number] : self.first[number + 1]].tolist()
        return tuple(self.names[node] for node in nodes)

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        return (self[number] for number in range(len(self)))

    def links(self, numbers: Mapping[tuple[str, str], int]) -> tuple[Ints, Ints]:
        """Return two arrays, ``first`` and ``link``: route r crosses the links ``link[first[r]:first[r + 1]]``.

        ``numbers`` maps (source, destination) to the number of a link. Other links get the number -1.
        """
        hops = np.maximum(np.diff(self.first) - 1, 0)
        node, width = self.node.astype(np.int64), len(self.names)
        is_last = np.zeros(len(node), np.bool_)
        is_last[self.first[1:][np.diff(self.first) > 0] - 1] = True
        at = np.flatnonzero(~is_last)
        pair, where = np.unique(node[at] * width + node[at + 1], return_inverse=True)
        ends = ((self.names[code // width], self.names[code % width]) for code in pair.tolist())
        known = np.array([numbers.get(edge, -1) for edge in ends], np.int64)
        return np.append(0, np.cumsum(hops)), known[where] if len(known) else np.zeros(0, np.int64)


NO_ROUTES = MessageRoutes([0, 0], [], ())  # a single route, which is unknown


class Messages(Columnar[Message]):
    """The messages of a Trace as columns, sorted by ``begin`` and sender. Iteration and indices return rows.

    >>> messages = Messages.of([Message(0, 1, 0, 0, 64, 0.0, 1e-3), Message(1, 0, 0, 1, 32, 0.0, 2e-3)])
    >>> messages.nbytes.sum(), messages[1].end, [message.src for message in messages]
    (np.int64(96), 0.002, [0, 1])
    """

    src = Column(np.int64)
    dst = Column(np.int64)
    step = Column(np.int64)
    chunk = Column(np.int64)
    nbytes = Column(np.int64)
    end = Column(np.float64)
    route = Column(np.int64)  # an index of ``routes``
    channel = Column(np.int64)
    dst_step = Column(np.int64)
    count = Column(np.int64)
    into = Column(np.int64)
    reduces = Column(np.bool_)
    src_posted = Column(np.float64)
    dst_posted = Column(np.float64)
    collective = Column(np.int64)

    ROW, LABEL, LABELS = Message, "route", "routes"
    _make_labels = MessageRoutes.of

    def __init__(self, routes: MessageRoutes = NO_ROUTES, **columns: npt.ArrayLike) -> None:
        """Store columns of equal length. A number stands for a constant column. Defaults are those of ``Message``.

        ``begin`` can replace both ``src_posted`` and ``dst_posted``. ``route`` contains indices of ``routes``.
        """
        begin = columns.pop("begin", nan)
        same = {"dst_step": columns["step"], "into": columns["chunk"], "src_posted": begin, "dst_posted": begin}
        super().__init__(routes, **({"route": 0} | same | columns))
        for name, other in (("into", "chunk"), ("dst_step", "step")):  # equal in most collectives: share the memory
            if np.array_equal(self.kept[name], self.kept[other]):
                self.kept[name] = self.kept[other]

    @classmethod
    def of(cls, rows: Iterable[Message]) -> Self:
        routes, columns = cls._split(rows)
        begin = columns.pop("begin")
        for name, other in (("dst_step", "step"), ("into", "chunk")):
            columns[name] = np.where(columns[name] < 0, columns[other], columns[name])
        for name in ("src_posted", "dst_posted"):
            columns[name] = np.where(np.isnan(columns[name]), begin, columns[name])
        return cls(routes, **columns)

    def _labels_to_plain(self) -> dict[str, Any]:
        return {
            "names": list(self.routes.names),
            "count": len(self.routes),
            "nodes": len(self.routes.node),
            "first": column_to_plain(self.routes.first),
            "node": column_to_plain(self.routes.node),
        }

    @classmethod
    def _read_labels(cls, plain: object) -> MessageRoutes:
        table = take(plain, ("names", "count", "nodes", "first", "node"), "routes")
        names, count, nodes = table["names"], table["count"], table["nodes"]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError("routes.names must be a list of strings")
        for name, number in (("count", count), ("nodes", nodes)):
            check_rows(number, f"routes.{name}")
        first = read_column(table["first"], np.int64, count + 1, "routes.first")
        node = read_column(table["node"], np.int64, nodes, "routes.node")
        if first[0] != 0 or first[-1] != nodes or (np.diff(first.astype(np.int64)) < 0).any():
            raise ValueError(f"routes.first must increase from 0 to {nodes}")
        if nodes and node.max() >= len(names):
            raise ValueError(f"routes.node must contain only indices of {len(names)} names, not {node.max()}")
        return MessageRoutes(first, node, names)

    @property
    def routes(self) -> MessageRoutes:
        routes: MessageRoutes = self.labels
        return routes

    @property
    def begin(self) -> Floats:
        """The time in seconds at which both ranks had posted the message; shape [messages]."""
        return np.maximum(self.src_posted, self.dst_posted)

    def sorted(self) -> Self:
        return self.select(np.lexsort((self.kept["src"], self.begin)))

    def _lists(self, which: slice) -> dict[str, list[Any]]:
        columns = super()._lists(which)
        return columns | {"begin": list(map(max, columns["src_posted"], columns["dst_posted"]))}


def find_problems(messages: Messages, world_size: int) -> Iterator[str]:
    """Yield a description of the first message with each kind of invalid value, such as a rank that does not exist."""
    src, dst, end = messages.kept["src"], messages.kept["dst"], messages.end
    for number in first_where((src < 0) | (src >= world_size) | (dst < 0) | (dst >= world_size)):
        yield f"messages.{number} goes from rank {src[number]} to rank {dst[number]} of {world_size}"
    for name in ("src_posted", "dst_posted", "end"):
        for number in first_where(~(np.abs(messages.kept[name]) <= MOST_SECONDS)):
            yield f"messages.{number}.{name} is {messages.kept[name][number]}"
    for number in first_where(~(messages.begin <= end)):
        yield f"messages.{number} ends at {end[number]} but begins at {messages.begin[number]}"
    for name, kind in messages.COLUMNS.items():
        for number in first_where(messages.kept[name] < 0) if kind is np.int64 else ():
            yield f"messages.{number}.{name} is {messages.kept[name][number]}"
