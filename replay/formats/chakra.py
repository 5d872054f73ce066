"""Read and write Chakra's execution traces (MLCommons): one file ``NAME.RANK.et`` per rank, a graph of nodes.

This module reads the parts of the schema (``et_def.proto``, version 0.0.4) that determine computing and communication:
compute nodes with their duration, collectives, sends, receives, and dependencies. A rank computes one node at a time,
in file order as far as dependencies allow, and its calls run in parallel. A send is done when it is issued. A
collective whose process group does not list its ranks (``pg_ranks``, which Ringlab writes) includes all ranks.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from pathlib import Path

from collectives.errors import InputError
from collectives.input_files import FileBytes, read_bytes
from collectives.output_files import write_bytes
from collectives.quoting import make_printable
from replay.formats.wire import (
    WireField,
    bytes_field,
    number_field,
    read_delimited,
    read_fields,
    read_varint,
    write_varint,
)
from replay.recording import CallKind, Did, RecordedCall, Recording
from replay.recording_builder import RecordedCollective, RecordingBuilder

VERSION = "0.0.4"
COMP, SEND, RECV, COLLECTIVE = 4, 5, 6, 7  # types of nodes
VERBS = {
    0: "all_reduce", 1: "reduce", 2: "all_gather", 3: "gather", 4: "scatter", 5: "broadcast", 6: "all_to_all",
    7: "reduce_scatter", 8: "reduce_scatter", 9: "barrier",
}  # fmt: skip
INT64, BOOL, STRING = 9, 27, 29  # fields of an attribute's value
NUMBERS = (7, 9, 11, 13, 15, 17, BOOL)
FILE = re.compile(r"(.*)\.(\d{1,7})\.et")
MICRO = 1e6
ROUNDED = "durations are whole microseconds in Chakra's traces"
MEMORY = "memory and metadata nodes are ignored"


@dataclass
class ChakraNode:
    """A node of a rank's trace."""

    number: int
    name: str = ""
    kind: int = 0
    after: list[int] = field(default_factory=list)  # numbers of the nodes that it depends on
    micros: int = 0
    numbers: dict[str, int] = field(default_factory=dict)  # attributes
    texts: dict[str, str] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Return the node as a protobuf message."""
        message = number_field(1, self.number) + bytes_field(2, self.name.encode()) + number_field(3, self.kind)
        message += b"".join(number_field(5, node) for node in self.after)
        message += number_field(7, self.micros)
        for name, value in self.numbers.items():
            kind = BOOL if name.startswith("is_") else INT64
            message += bytes_field(10, bytes_field(1, name.encode()) + number_field(kind, value))
        for name, text in self.texts.items():
            message += bytes_field(10, bytes_field(1, name.encode()) + bytes_field(STRING, text.encode()))
        return message


def _read_node(message: bytes) -> ChakraNode:
    node = ChakraNode(-1)
    for wire_field in read_fields(message):
        if wire_field.number == 1:
            node.number = wire_field.whole
        elif wire_field.number == 2:
            node.name = make_printable(wire_field.text, most=100)
        elif wire_field.number == 3:
            node.kind = wire_field.whole
        elif wire_field.number in (4, 5):
            node.after += _numbers(wire_field)
        elif wire_field.number == 7:
            node.micros = wire_field.whole
        elif wire_field.number == 10:
            _read_attribute(wire_field.inner, node)
    node.number = max(0, node.number)  # 0 is not written
    return node


def _numbers(wire_field: WireField) -> list[int]:
    """Return the integers of a repeated protobuf field, packed or not."""
    if isinstance(wire_field.value, int):
        return [wire_field.value]
    numbers, at = list[int](), 0
    while at < len(wire_field.value):
        value, at = read_varint(wire_field.value, at)
        numbers.append(value)
    return numbers


def _read_attribute(message: bytes, node: ChakraNode) -> None:
    name = ""
    for wire_field in read_fields(message):
        if wire_field.number == 1:
            name = wire_field.text
        elif wire_field.number in NUMBERS:
            node.numbers[name] = wire_field.whole
        elif wire_field.number == STRING:
            node.texts[name] = wire_field.text


def chakra_files(path: Path) -> list[Path]:
    """Return the trace files of all ranks, given one of them. Raise InputError if one is missing."""
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
    return [files[rank] for rank in range(len(files))]


def read_chakra(path: Path) -> Recording:
    """Return the recording of all ranks, given the trace file of one rank.

    Raises InputError if the file of a rank is missing or invalid.
    """
    files = chakra_files(path)
    matched = FILE.fullmatch(path.name)
    assert matched is not None
    builder = RecordingBuilder(make_printable(matched[1], most=100), len(files), "chakra")
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
    """Writes the nodes of a rank into one log, each after its dependencies, and otherwise in order of their numbers."""

    def __init__(self, builder: RecordingBuilder, rank: int, nodes: Sequence[ChakraNode]) -> None:
        self.builder, self.rank = builder, rank
        self.nodes = {node.number: node for node in nodes}
        if len(self.nodes) < len(nodes):
            raise ValueError("two nodes have the same id")
        self.calls: dict[int, int] = {}  # call numbers of the nodes that communicate
        self.times: defaultdict[object, int] = defaultdict(int)

    def play(self) -> None:
        """Log posts, waits and computing. Raise ValueError for a dependency cycle or an unknown dependency."""
        left = {number: set(node.after) for number, node in self.nodes.items()}
        behind: defaultdict[int, list[int]] = defaultdict(list)
        for number, after in left.items():
            for dependency in after:
                if dependency not in self.nodes:
                    raise ValueError(f"node {number} depends on node {dependency}, which does not exist")
                behind[dependency].append(number)
        ready = [number for number, after in left.items() if not after]
        heapify(ready)
        done, seconds = 0, 0.0
        while ready:
            node = self.nodes[heappop(ready)]
            seconds = self._do(node, seconds)
            done += 1
            for other in behind[node.number]:
                left[other].discard(node.number)
                if not left[other]:
                    heappush(ready, other)
        if done < len(self.nodes):
            raise ValueError(f"{len(self.nodes) - done} nodes form a dependency cycle")
        self.builder.compute(self.rank, seconds)

    def _do(self, node: ChakraNode, seconds: float) -> float:
        """Log a node after ``seconds`` of computing. Return the seconds that are not logged yet."""
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
            key = (name, ranks, self.times[name, ranks])
            self.times[name, ranks] += 1
            return self.builder.collective(self.rank, key, collective)
        sends, tag = node.kind == SEND, node.numbers.get("comm_tag", 0)
        peer = node.numbers.get("comm_dst" if sends else "comm_src", 0)
        ends = (self.rank, peer) if sends else (peer, self.rank)
        number = self.times[sends, ends, tag]
        self.times[sends, ends, tag] += 1
        half = self.builder.send if sends else self.builder.recv
        return half(self.rank, peer, nbytes, key=(ends, tag, number), tag=tag)


def write_chakra(recording: Recording, base: Path) -> list[Path]:
    """Write a recording as ``BASE.RANK.et``, and return the files. Each stream of a rank becomes a chain of nodes."""
    files = []
    for rank in range(recording.world_size):
        nodes = _nodes_of(recording, rank)
        messages = [bytes_field(1, VERSION.encode()), *(node.to_bytes() for node in nodes)]
        files.append(base.with_name(f"{base.name}.{rank}.et"))
        write_bytes(files[-1], b"".join(write_varint(len(message)) + message for message in messages))
    return files


class _Nodes(list[ChakraNode]):
    def add(self, node: ChakraNode) -> int:
        node.number = len(self)
        self.append(node)
        return node.number

    def compute(self, seconds: float, after: list[int]) -> list[int]:
        """Add a compute node to a stream. Return the nodes that the stream's next node depends on."""
        micros = round(seconds * MICRO)
        return [self.add(ChakraNode(0, "compute", COMP, after, micros, {"is_cpu_op": 0}))] if micros else after


def _nodes_of(recording: Recording, rank: int) -> list[ChakraNode]:
    nodes, of_call, of_signal = _Nodes(), dict[int, int](), dict[int, list[int]]()
    for stream in [number for number, stream in enumerate(recording.streams) if stream.rank == rank]:
        after: list[int] = []  # dependencies of the stream's next node
        for entry in recording.entries.select(recording.entries.stream == stream):
            after = nodes.compute(entry.seconds, after)
            if entry.did == Did.POST:
                of_call[entry.number] = nodes.add(_call_node(recording, entry.number, after))
            elif entry.did == Did.WAIT:
                after = [*after, of_call[entry.number]]
            elif entry.did == Did.SIGNAL:
                of_signal[entry.number] = after
            elif entry.did == Did.AWAIT:
                after = [*after, *of_signal.get(entry.number, [])]
        nodes.compute(recording.streams[stream].tail, after)
    return nodes


def _call_node(recording: Recording, number: int, after: list[int]) -> ChakraNode:
    call: RecordedCall = recording.calls[number]
    numbers = {"is_cpu_op": 0, "comm_size": call.nbytes}
    if call.kind == CallKind.COLLECTIVE:
        verb, group = recording.verbs[call.verb], recording.groups[call.group]
        numbers |= {"comm_type": next(kind for kind, name in VERBS.items() if name == verb), "root": call.root}
        texts = {"pg_name": group.name, "pg_ranks": ",".join(map(str, group.ranks))}
        return ChakraNode(0, verb, COLLECTIVE, after, 0, numbers, texts)
    sends = call.kind == CallKind.SEND
    numbers |= {"comm_tag": call.tag, "comm_src": call.rank if sends else call.peer}
    numbers["comm_dst"] = call.peer if sends else call.rank
    return ChakraNode(0, "send" if sends else "recv", SEND if sends else RECV, after, 0, numbers)
