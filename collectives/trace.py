"""The one record of what happened, simulated or measured alike; everything that draws reads it.

Times are seconds from the common start. On disk it is JSON with a schema version, topology included.
"""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from collectives.atomic import write_text
from collectives.errors import InputError

SCHEMA_VERSION = 1


class Message(NamedTuple):
    """One message: ``begin`` when both halves were posted or sending began, ``end`` when its bytes had arrived."""

    src: int
    dst: int
    step: int  # of the sender's program
    chunk: int  # first of its chunks
    nbytes: int
    begin: float
    end: float
    route: tuple[str, ...] = ()  # node names from src to dst; empty where it is not known


class Span(NamedTuple):
    """A rank in one phase: ``reduce``, or of a training step ``forward``, ``backward``, ``sync``, ``optimizer``."""

    rank: int
    name: str
    step: int  # of its program, or the training step
    begin: float
    end: float


class TracedLink(NamedTuple):
    """One direction of a link as it was: bytes per second, seconds, and the bytes that crossed it."""

    src: str
    dst: str
    bandwidth: float
    latency: float
    nbytes: float


@dataclass
class Trace:
    """Ranks, messages, spans of computing, links and when it was all done.

    ``facts`` are numbers that belong to the whole: for a collective ``nbytes``, ``time_min_s``, ``time_max_s``; for
    training ``batch_size``, ``single_rank_step_s`` and, where measured, ``test_accuracy`` and ``examples_seen``.
    """

    title: str  # the algorithm's full name, or "training/ring"
    kind: Literal["predicted", "measured"]
    world_size: int
    elapsed: float  # first rank's start to last rank's end, seconds
    messages: list[Message] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    links: list[TracedLink] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)  # node of each rank
    facts: dict[str, float] = field(default_factory=dict)

    def bytes_sent(self) -> list[int]:
        """Bytes that each rank sent."""
        sent = [0] * self.world_size
        for message in self.messages:
            sent[message.src] += message.nbytes
        return sent

    def write(self, path: Path) -> None:
        """Write it as JSON, whole or not at all."""
        write_text(path, json.dumps({"schema_version": SCHEMA_VERSION, **asdict(self)}))


def read_trace(path: Path) -> Trace:
    """The trace in a file that ``Trace.write`` wrote. Raises InputError that names the file and what is wrong."""
    from pydantic import ConfigDict, TypeAdapter, ValidationError  # slow to import, and only needed here

    try:
        content = json.loads(path.read_text())
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise InputError(f"{path}: not a trace: it is not JSON ({error})") from error
    version = content.pop("schema_version", None) if isinstance(content, dict) else None
    if version != SCHEMA_VERSION:
        raise InputError(f"{path}: not a trace of schema version {SCHEMA_VERSION} (found {version!r})")
    try:
        return TypeAdapter(Trace, config=ConfigDict(extra="forbid")).validate_python(content)
    except (ValidationError, TypeError) as error:
        raise InputError(f"{path}: not a trace: {str(error).splitlines()[0]}") from error
