"""Run programs on virtual ranks, each in a fork of one server that has imported torch."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import simcomm
from collectives.records.trace import Trace
from replay.recording import Recording
from simcomm.cluster.cluster import Cluster
from virtual.hosting.host import VirtualHost
from virtual.options import VirtualOptions
from virtual.outcome import VirtualOutcome
from virtual.process.programs import UserProgram

PRELOADED = (
    "torch._dynamo",
    "torch.distributed.checkpoint",
    "torch.distributed.fsdp",
    "torch.distributed.pipelining",
    "torch.distributed.tensor.parallel",
)


class Ran(NamedTuple):
    out: str
    err: str
    outcome: VirtualOutcome
    recording: Recording | None
    trace: Trace | None

    def lines(self, rank: int) -> list[str]:
        """Return the lines that a rank printed, without the rank prefix."""
        mark = f"[rank {rank}] "
        return [line.removeprefix(mark) for line in self.out.splitlines() if line.startswith(mark)]


def star(ranks: int) -> Cluster:
    return simcomm.star(max(ranks, 1), "10 Gbit/s", "5 us")


class VirtualRuns:
    def __init__(self, host: VirtualHost) -> None:
        self.host = host

    def __call__(
        self, program: str | Path, ranks: int, *arguments: str, cluster: Cluster | None = None, **options: Any
    ) -> Ran:
        file = Path(program)
        output: dict[str, list[str]] = {"stdout": [], "stderr": []}
        virtual_options = VirtualOptions(
            UserProgram(str(file), arguments), ranks, cluster or star(ranks or 8), **options
        )
        finished = self.host.run(virtual_options, timeout=120, show=lambda stream, text: output[stream].append(text))
        recording = finished.recordings[-1]
        return Ran("".join(output["stdout"]), "".join(output["stderr"]), finished.outcome, recording, finished.trace)


@contextmanager
def virtual_runs() -> Iterator[VirtualRuns]:
    with VirtualHost(PRELOADED) as host:
        yield VirtualRuns(host)
