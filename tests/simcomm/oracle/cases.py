"""Cases for SimGrid's flow model: a network, each rank's program, and the end of every message.

On disk, a case is one line of JSON. Links are ``[a, b, bytes/s, nanoseconds]``, and a rank's program is text:

    =0+12 / >3:0+4 <5:7+1 / +3:0+4

is three steps; ``|`` separates channels. The first copies 12 chunks, from chunk 0 on, into scratch, which keeps the
rank busy for ``gamma`` seconds per byte. The second sends 4 chunks to rank 3 and receives 1 from rank 5. The third
receives and reduces.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from collectives import Algorithm, Kind, Operation, Transport, copy, find_algorithm, recv, recv_reduce, send
from collectives.output_files import write_text
from collectives.schedule.build import build_schedule
from collectives.schedule.schedule import Schedule
from collectives.spec import find_spec
from collectives.step import Step, extent
from simcomm import Cluster, from_links

FILE = Path(__file__).with_name("simgrid_cases.json")
SCHEMA_VERSION = 1

Link = tuple[str, str, int, int]  # node, node, bytes/s and nanoseconds in each direction
Place = tuple[int, int, int, int, int]  # src, dst, channel, step of the sender, first chunk
Channels = list[list[Step]]  # the steps of each program of a rank


class Sent(NamedTuple):
    """A non-empty message, with the indices of its two halves in the schedule."""

    place: Place
    nbytes: int
    send: int
    receive: int


@dataclass(frozen=True)
class Case:
    """Ranks on ``hosts`` of a network, with ``nbytes`` one-byte elements each, and the times that SimGrid computed.

    They run an ``algorithm`` of the library, or ``programs`` on a buffer of ``chunks`` chunks with as many scratch
    chunks. ``ends`` are the seconds at which each message ends, in the order of ``sent``.
    """

    name: str
    links: list[Link]
    hosts: list[str]
    nbytes: int
    gamma: float = 0.0
    algorithm: str = ""
    chunks: int = 0
    programs: list[str] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        return self.name

    @property
    def cluster(self) -> Cluster:
        links = [(a, b, f"{rate} B/s", f"{nanoseconds} ns") for a, b, rate, nanoseconds in self.links]
        return replace(from_links(links, Transport("test", gamma=self.gamma), self.name), hosts=tuple(self.hosts))

    @property
    def schedule(self) -> Schedule:
        return build_schedule(self._program(), len(self.hosts))

    def _program(self) -> Algorithm:
        if self.algorithm:
            return find_algorithm(self.algorithm)
        ranks = [channels_of(text, self.chunks) for text in self.programs]
        spec = find_spec("all_reduce")
        return Algorithm(spec, self.name, lambda rank, _: tuple(map(iter, ranks[rank])), self.chunks, self.chunks)


def sent(schedule: Schedule, nbytes: int) -> Iterator[Sent]:
    """Yield the non-empty messages by rank, channel and step of the sender. Each rank has ``nbytes`` bytes."""
    sends = (schedule.kind == Kind.SEND).nonzero()[0].tolist()
    for index in sorted(sends, key=lambda i: (schedule.rank[i], schedule.channel[i], schedule.step[i], i)):
        fields = (schedule.rank, schedule.peer, schedule.channel, schedule.step, schedule.chunk, schedule.count)
        *place, count = (int(column[index]) for column in fields)
        size = extent(place[-1], count, nbytes, schedule.chunks)
        if size > 0:
            src, dst, channel, step, chunk = place
            yield Sent((src, dst, channel, step, chunk), size, index, int(schedule.match[index]))


MAKE = {">": send, "<": recv, "+": recv_reduce}
OPERATION = re.compile(r"(?:=|([><+])(\d+):)(\d+)\+(\d+)")


def channels_of(text: str, chunks: int) -> Channels:
    return [
        [tuple(_operation(word, chunks) for word in step.split()) for step in program.split("/") if step.strip()]
        for program in text.split("|")
    ]


def _operation(word: str, chunks: int) -> Operation:
    match = OPERATION.fullmatch(word)
    assert match, f"{word!r} is no operation"
    sign, peer, chunk, count = match.groups()
    if sign is None:
        return copy(int(chunk), chunks + int(chunk), int(count))
    return MAKE[sign](int(peer), int(chunk), int(count))


def read_cases(path: Path = FILE) -> tuple[dict[str, Any], list[Case]]:
    content = json.loads(path.read_text())
    assert content.pop("schema_version") == SCHEMA_VERSION
    return content, [Case(**case) for case in content.pop("cases")]


def write_cases(path: Path, made_by: dict[str, Any], cases: list[Case]) -> None:
    """Write the cases without empty fields."""
    lines = [json.dumps({key: value for key, value in asdict(case).items() if value}) for case in cases]
    head = json.dumps({"schema_version": SCHEMA_VERSION, **made_by}, indent=1).removesuffix("\n}")
    write_text(path, f'{head},\n "cases": [\n' + ",\n".join(lines) + "\n ]\n}\n")
