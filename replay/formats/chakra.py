"""Read Chakra's execution traces (MLCommons). Each rank has a file ``NAME.RANK.et`` with a graph of nodes.

This module reads compute nodes with their durations, collectives, sends, receives and dependencies, as defined by
``et_def.proto``, version 0.0.4. A rank runs its compute nodes one after another. The order is that of the IDs, except
that each node follows its dependencies. Communication runs in parallel, and a send is complete when it is issued. A
collective without ``pg_ranks`` includes all ranks.

The encoding is protobuf's: protobuf.dev/programming-guides/encoding. Truncated and overlong messages are rejected.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import networkx as nx

from collectives.budget import Gigabyte, check_read
from collectives.errors import InputError
from collectives.input_files import FileBytes, read_bytes
from collectives.quoting import make_printable
from replay.recording import Recording
from replay.recording_builder import RecordedCollective, RecordingBuilder

COMP, SEND, RECV, COLLECTIVE = 4, 5, 6, 7  # types of nodes
VERBS = {
    0: "all_reduce", 1: "reduce", 2: "all_gather", 3: "gather", 4: "scatter", 5: "broadcast", 6: "all_to_all",
    7: "reduce_scatter", 8: "reduce_scatter", 9: "barrier",
}  # fmt: skip
NUMBERS, STRING = (7, 9, 11, 13, 15, 17, 27), 29  # fields of an attribute's value
FILE = re.compile(r"(.*)\.(\d{1,7})\.et")
MICRO = 1e6
ROUNDED = "durations are whole microseconds in Chakra's traces"
MEMORY = "memory and metadata nodes are ignored"

VARINT, BYTES = 0, 2  # kinds of protobuf fields
WIDTHS = {1: 8, 5: 4}  # bytes of the other kinds
LONGEST_VARINT = 10  # maximum bytes of a varint


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the varint at ``at`` and the position after it. Raise ValueError if it is truncated or too long."""
    if data[at : at + 1] < b"\x80" and at < len(data):  # most varints have one byte
        return data[at], at + 1
    value = 0
    for place, byte in enumerate(data[at : at + LONGEST_VARINT]):
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value & ((1 << 64) - 1), at + place + 1
    raise ValueError(f"no number at byte {at}")


def read_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and the value of each field of a protobuf message. Raise ValueError if the message is invalid.

    >>> list(read_fields(b"\x08\x07\x12\x01a"))
    [(1, 7), (2, b'a')]
    """
    at = 0
    while at < len(data):
        key, at = read_varint(data, at)
        kind, number = key & 7, key >> 3
        if kind == VARINT:
            value, at = read_varint(data, at)
            yield number, value
            continue
        if kind == BYTES:
            size, at = read_varint(data, at)
        elif kind in WIDTHS:
            size = WIDTHS[kind]
        else:
            raise ValueError(f"no field at byte {at}")
        if at + size > len(data):
            raise ValueError(f"the field at byte {at} has {size} bytes, but the data has only {len(data)}")
        yield number, data[at : at + size]
        at += size


def read_delimited(data: bytes, where: object) -> Iterator[bytes]:
    """Yield length-prefixed messages. Raise ValueError for a truncated message, and TooLarge for too many messages."""
    at = number = 0
    while at < len(data):
        size, at = read_varint(data, at)
        if at + size > len(data):
            raise ValueError(f"message {number} has {size} bytes, but only {len(data) - at} are left")
        check_read(where, number + 1, Gigabyte.ENTRIES, "messages")
        yield data[at : at + size]
        at, number = at + size, number + 1


@dataclass
class ChakraNode:
    number: int = 0
    kind: int = 0
    after: list[int] = field(default_factory=list)  # numbers of the nodes that it depends on
    micros: int = 0
    numbers: dict[str, int] = field(default_factory=dict)  # attributes
    texts: dict[str, str] = field(default_factory=dict)


def _read_node(message: bytes) -> ChakraNode:
    node = ChakraNode()  # protobuf does not write zeros
    for field_ in read_fields(message):
        match field_:
            case 1, int(number):
                node.number = number
            case 3, int(kind):
                node.kind = kind
            case ((4 | 5), int(number)):
                node.after.append(number)
            case ((4 | 5), bytes(packed)):
                at = 0
                while at < len(packed):
                    number, at = read_varint(packed, at)
                    node.after.append(number)
            case 7, int(micros):
                node.micros = micros
            case 10, bytes(attribute):
                _read_attribute(attribute, node)
            case (1 | 3 | 7 | 10) as number, _:
                raise ValueError(f"field {number} has the wrong type")
    return node


def _read_attribute(message: bytes, node: ChakraNode) -> None:
    name = ""
    for field_ in read_fields(message):
        match field_:
            case 1, bytes(text):
                name = text.decode()
            case number, int(value) if number in NUMBERS:
                node.numbers[name] = value
            case number, bytes(text) if number == STRING:
                node.texts[name] = text.decode()


def chakra_files(path: Path) -> tuple[str, list[Path]]:
    """Return the name of a trace and the files of all its ranks, given the file of any rank.

    Raise InputError if the file is not named NAME.RANK.et, or the file of a rank is missing.
    """
    matched = FILE.fullmatch(path.name)
    if matched is None:
        raise InputError(f"{path}: Chakra traces must be named NAME.RANK.et, such as ddp.0.et")
    files = {}
    for file in path.parent.glob("*.et"):
        other = FILE.fullmatch(file.name)
        if other is not None and other[1] == matched[1]:
            files[int(other[2])] = file
    for rank in range(len(files)):
        if rank not in files:
            raise InputError(f"{path.parent}: {matched[1]}.{rank}.et is missing; found the files of {len(files)} ranks")
    return matched[1], [files[rank] for rank in range(len(files))]


def read_chakra(path: Path) -> Recording:
    """Read the recording of all ranks, given the trace file of any rank.

    Raises InputError if the file of a rank is missing or invalid.
    """
    name, files = chakra_files(path)
    builder = RecordingBuilder(make_printable(name, most=100), len(files), "chakra")
    for rank, file in enumerate(files):
        try:
            _, *messages = read_delimited(read_bytes(file, FileBytes.RECORDING), file)
            nodes = [_read_node(message) for message in messages]
            _Rank(builder, rank, nodes).play()
        except (ValueError, UnicodeDecodeError) as error:
            raise InputError(f"{file}: not a Chakra trace: {error}") from error
    builder.notes.append(ROUNDED)
    return builder.recording()


class _Rank:
    """Adds the nodes of a rank to a recording in order of their IDs, except that nodes follow their dependencies."""

    def __init__(self, builder: RecordingBuilder, rank: int, nodes: Sequence[ChakraNode]) -> None:
        self.builder, self.rank = builder, rank
        self.nodes = {node.number: node for node in nodes}
        if len(self.nodes) < len(nodes):
            raise ValueError("two nodes have the same id")
        self.calls: dict[int, int] = {}  # call numbers of the nodes that communicate

    def play(self) -> None:
        """Add all nodes. Raise ValueError if a dependency does not exist, or dependencies form a cycle."""
        graph: nx.DiGraph[int] = nx.DiGraph()
        graph.add_nodes_from(self.nodes)
        for number, node in self.nodes.items():
            for dependency in node.after:
                if dependency not in self.nodes:
                    raise ValueError(f"node {number} depends on node {dependency}, which does not exist")
                graph.add_edge(dependency, number)
        seconds = 0.0
        try:
            for number in nx.lexicographical_topological_sort(graph):
                seconds = self._do(self.nodes[number], seconds)
        except nx.NetworkXUnfeasible as error:
            cycle = [before for before, _ in nx.find_cycle(graph)]
            raise ValueError(f"nodes {cycle[:8]} form a dependency cycle") from error
        self.builder.compute(self.rank, seconds)

    def _do(self, node: ChakraNode, seconds: float) -> float:
        """Log a node after ``seconds`` of computing. Return the compute time since the last log entry."""
        for dependency in sorted(node.after):
            if dependency in self.calls and self.nodes[dependency].kind != SEND:
                self.builder.wait(self.rank, self.calls[dependency], seconds)
                seconds = 0.0
        if node.kind == COMP:
            return seconds + node.micros / MICRO
        if node.kind not in (SEND, RECV, COLLECTIVE):
            if MEMORY not in self.builder.notes:
                self.builder.notes.append(MEMORY)
            return seconds
        self.calls[node.number] = self._call(node)
        self.builder.post(self.rank, self.calls[node.number], seconds)
        return 0.0

    def _call(self, node: ChakraNode) -> int:
        nbytes = node.numbers.get("comm_size", 0)
        if node.kind == COLLECTIVE:
            name = node.texts.get("pg_name", "")
            ranks = tuple(map(int, node.texts["pg_ranks"].split(","))) if "pg_ranks" in node.texts else None
            ranks = ranks or tuple(range(self.builder.world_size))
            kind = node.numbers.get("comm_type", 0)
            if kind not in VERBS:
                raise ValueError(f"node {node.number}: unsupported comm_type {kind}")
            collective = RecordedCollective(
                VERBS[kind], ranks, nbytes, 1, "uint8", root=node.numbers.get("root", 0), group=name or "world"
            )
            return self.builder.collective(self.rank, self.builder.in_order(self.rank, name, ranks), collective)
        sends, tag = node.kind == SEND, node.numbers.get("comm_tag", 0)
        peer = node.numbers.get("comm_dst" if sends else "comm_src", 0)
        ends = (self.rank, peer) if sends else (peer, self.rank)
        half = self.builder.send if sends else self.builder.recv
        return half(self.rank, peer, nbytes, key=self.builder.in_order(sends, ends, tag), tag=tag)
