"""Worker processes of realcomm's tests, in a separate module so that they start without pytest."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import torch
import torch.distributed as dist

import realcomm
from collectives.call import CollectiveCall
from collectives.declaration import nccl
from collectives.errors import InputError
from collectives.spec import find_spec
from realcomm.launching.status import report_progress, set_status
from realcomm.measuring.collective_run import TimedCall
from realcomm.measuring.rank_measurement import measure_rank


def sum_of_ranks(rank: int, world_size: int, scale: int = 1) -> tuple[int, int, float]:
    total = torch.tensor([float(rank * scale)])
    dist.all_reduce(total)
    return rank, torch.get_num_threads(), total.item()


def profile_training(rank: int, world_size: int, folder: Path, suffix: str) -> list[float]:
    """Train a little under torch's profiler, which writes a file a rank; return when phases ended, by our own clock."""
    torch.manual_seed(0)
    model, ended = torch.nn.Linear(64, 64), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    dist.all_reduce(torch.zeros(1))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        for _ in range(3):
            with torch.profiler.record_function("load"):
                images = torch.randn(32, 64)
            model(images).sum().backward()
            ended.append(time.time())
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
            ended.append(time.time())
            optimizer.step()
            optimizer.zero_grad()
            ended.append(time.time())
            profiler.step()
    profiler.export_chrome_trace(str(folder / f"rank{rank}{suffix}"))
    return ended


def fail_on(rank: int, world_size: int, bad: int, how: str) -> object:
    set_status("counting sheep")
    if rank == bad:
        match how:
            case "raise":
                raise ZeroDivisionError("no sheep")
            case "refuse":
                raise InputError("cake.toml: there is no cake")
            case "time out":  # as gloo does if it cannot connect, long before the run's own timeout
                raise RuntimeError("[x]:7: Connect timed out")
            case "_exit":
                os._exit(7)
            case "sleep":
                time.sleep(600)
            case name:
                time.sleep(0.1)  # the others are waiting by then, and see the connection break
                os.kill(os.getpid(), signal.Signals[name])
    realcomm.all_reduce(torch.zeros(1 << 16))
    return None


def leave_early(rank: int, world_size: int) -> float:
    """Finish at once on rank 0, and on rank 1 long before rank 2 reads its message."""
    data = torch.tensor([1.0])
    if rank == 1:
        dist.send(data, 2)
    elif rank == 2:
        time.sleep(0.5)
        dist.recv(data, 1)
    return data.item()


def report_three(rank: int, world_size: int) -> None:
    for done in range(1, 4):
        report_progress(done, 3, f"part {done}")


def settings(rank: int, world_size: int, name: str) -> tuple[str | None, str, list[str]]:
    """Return an environment variable, the working directory, and the local addresses that accept connections."""
    connections = psutil.Process().net_connections()
    addresses = [each.laddr.ip for each in connections if each.status == psutil.CONN_LISTEN]
    return os.environ.get(name), str(Path.cwd()), addresses


def check_own_collectives(rank: int, world_size: int, collectives: tuple[str, ...]) -> dict[str, int]:
    """Return by collective and operator how many elements of the backend's own result are wrong on this rank."""
    wrong = {}
    for name in collectives:
        for op in ("sum", "mean") if find_spec(name).reduces else ("sum",):
            call = CollectiveCall(nccl(name), 12 * world_size, op=op, root=1 if find_spec(name).rooted else 0)
            wrong[f"{name} {op}"] = measure_rank(rank, world_size, TimedCall(call, 1, 3, None)).wrong
    return wrong


def count_and_train(
    rank: int, world_size: int, silent: list[Any], counted: list[Any], trained: list[Any], folder: Path
) -> tuple[list[Any], list[Any]]:
    """Return torch's calls and memory with some strategies, and the results of trainings, in one group of ranks.

    The weights of each training are written into the folder. The first rank takes steps without communication, while
    the others wait for it.
    """
    from benchmarks.torch_strategies.running import run_strategies
    from realcomm.strategies.pieces import silent_step
    from realcomm.strategies.training import train_strategy

    for step in [silent_step(plan, rank, world_size) for plan in silent]:
        if rank == 0:
            step()
    return run_strategies(rank, world_size, counted), [
        train_strategy(rank, world_size, plan, folder / f"{place}.pt") for place, plan in enumerate(trained)
    ]
