"""Programs on real ranks that gloo connects, each rank a fork of one server that has imported torch once."""

import hashlib
import io
import json
import os
import runpy
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

TIMEOUT_S = 60.0


class RealRank(NamedTuple):
    """The result of a rank: its exception, if any, and a digest of each parameter of the program's modules."""

    error: str
    parameters: dict[str, str]


class GlooRuns:
    """Runs a program on real ranks and returns the result of each rank."""

    def __init__(self, server: "subprocess.Popen[str]") -> None:
        self.server = server

    def __call__(self, program: Path, ranks: int, local_ranks: int | None = None) -> list[RealRank]:
        assert self.server.stdin is not None and self.server.stdout is not None
        self.server.stdin.write(json.dumps([str(program), ranks, local_ranks or ranks]) + "\n")
        self.server.stdin.flush()
        return [RealRank(*one) for one in json.loads(self.server.stdout.readline())]


@contextmanager
def gloo_runs(preloaded: Sequence[str]) -> Iterator[GlooRuns]:
    """Yield what runs programs; its server ends with the context."""
    command = [sys.executable, __file__, *preloaded]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        yield GlooRuns(server)
        assert server.stdin is not None
        server.stdin.close()


def serve(preloaded: Sequence[str]) -> None:
    """Run programs that standard input names, one on each line, until it ends."""
    for name in preloaded:
        import_module(name)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what programs print is no answer
    for line in sys.stdin:
        print(json.dumps(run(*json.loads(line))), file=answers, flush=True)


def run(program: str, ranks: int, local_ranks: int) -> list[RealRank]:
    """Return the result of each rank of a program."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = get_context("fork")
    queues = [context.SimpleQueue() for _ in range(ranks)]
    places = [(rank, ranks, local_ranks, port) for rank in range(ranks)]
    processes = [
        context.Process(target=run_rank, args=(program, place, queue))
        for place, queue in zip(places, queues, strict=True)
    ]
    for process in processes:
        process.start()
    end = time.monotonic() + TIMEOUT_S
    for process in processes:
        process.join(max(0.0, end - time.monotonic()))
        if process.exitcode is None:
            process.kill()
            process.join()
    return [RealRank("no result", {}) if queue.empty() else queue.get() for queue in queues]


def run_rank(program: str, place: tuple[int, int, int, int], results: Any) -> None:
    """Run a program as torchrun would start it; sleeping moves its clock and takes no time."""
    import torch
    import torch.distributed as dist

    rank, ranks, local_ranks, port = place
    os.environ |= {
        "RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_RANK": str(rank % local_ranks),
        "LOCAL_WORLD_SIZE": str(local_ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    torch.set_num_threads(1)
    slept, read_clock = [0.0], time.time
    time.sleep = lambda seconds: slept.append(seconds)  # type: ignore[assignment]
    time.time = lambda: read_clock() + sum(slept)
    sys.stdout = sys.stderr = io.StringIO()
    sys.argv = [program]
    try:
        names = runpy.run_path(program, run_name="__main__")
    except SystemExit as end:
        results.put(RealRank(f"exit status {end.code}" if end.code else "", {}))
    except BaseException as error:
        results.put(RealRank(f"{type(error).__name__}: {error}", {}))
    else:
        if dist.is_initialized():
            dist.barrier()  # rank 0 serves the store, which others may still need
        results.put(RealRank("", digest_parameters(names)))


def digest_parameters(names: dict[str, Any]) -> dict[str, str]:
    """Return a digest of each parameter of the modules among a program's names; shards are left out."""
    import torch
    from torch.distributed.tensor import DTensor

    modules = {name: value for name, value in names.items() if isinstance(value, torch.nn.Module)}
    return {
        f"{module}.{name}": hashlib.sha256(one.detach().numpy().tobytes()).hexdigest()
        for module, value in modules.items()
        for name, one in value.named_parameters()
        if not isinstance(one, DTensor)
    }


if __name__ == "__main__":
    serve(sys.argv[1:])
