"""Workers of the executor's tests: programs on real tensors, next to torch's own collectives or an oracle."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nccl_on_gloo
import pytest
import torch
import torch.distributed as dist

from collectives.call import CollectiveCall
from collectives.catalogue import library
from collectives.costs.message_classes import Probe
from collectives.declaration import Algorithm
from collectives.errors import InputError
from collectives.pipeline import pipeline
from collectives.spec import find_spec
from collectives.step import Kind, Operation, Program, Step, as_step, copy, recv, recv_reduce, reduce, send
from collectives.training.workload import Training
from realcomm.calibration.blocks import BlockStep
from realcomm.calibration.calibrator import CalibrationTraining
from realcomm.execution import device_clock, events, nccl, shared_clock
from realcomm.execution.events import Event
from realcomm.execution.executor import Executor, execute
from realcomm.launching.group import own_device, share_gpu
from realcomm.measuring import probes, rank_measurement
from realcomm.measuring.collective_run import RankMeasurement, TimedCall
from realcomm.measuring.rank_measurement import exact_input, exact_result, measure_rank, time_together


def ad_hoc(
    function: Callable[..., Program], chunks: int, scratch: int = 0, collective: str = "all_reduce"
) -> Algorithm:
    return Algorithm(find_spec(collective), "ad_hoc", function, chunks, scratch)


def on_one_gpu(rank: int, world_size: int) -> tuple[int, list[str]]:
    """Return the number of algorithms tried on a GPU that all ranks share, over NCCL's sockets, and the wrong ones."""
    share_gpu(rank)
    torch.cuda.set_device(0)
    tried, wrong, device = 0, [], torch.device("cuda", 0)
    for algorithm in library().values():
        root = (world_size - 1) * algorithm.spec.rooted
        for n in (world_size * algorithm.chunks(world_size), 60_000 * algorithm.chunks(world_size)):
            tried += 1
            call = CollectiveCall(algorithm, n, root=root)
            tensor = exact_input(call, rank).to(device)
            Executor(call, rank, world_size, device=device).run(tensor)
            expected = exact_result(call, rank, world_size)
            if expected is not None and not torch.equal(tensor.cpu()[expected[0]], expected[1]):
                wrong.append(f"{algorithm.full_name} n={n}")
    return tried, wrong


def several(rank: int, world_size: int, workers: Sequence[Callable[[int, int], Any]]) -> dict[str, Any]:
    """Return the results of several workers by name, so that one start of the processes serves several tests."""
    return {worker.__name__: worker(rank, world_size) for worker in workers}


def by_worker(ranks: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Return the results of ``several`` by worker, each by rank."""
    return {name: [results[name] for results in ranks] for name in ranks[0]}


Rounds = list[list[list[Operation]]]  # [round][rank] -> the operations of its step


def random_rounds(rng: random.Random, world_size: int, chunks: int) -> Rounds:
    """Return random steps within the contract; every rank's k-th step only meets the others' k-th."""
    first = [[copy(0, into=chunks, count=chunks)] for _ in range(world_size)]  # scratch is defined from here on
    return [first, *(_random_round(rng, world_size, chunks) for _ in range(5))]


def _random_round(rng: random.Random, world_size: int, chunks: int) -> list[list[Operation]]:
    steps: list[list[Operation]] = [[] for _ in range(world_size)]
    written: list[set[int]] = [set() for _ in range(world_size)]
    added: list[set[int]] = [set() for _ in range(world_size)]  # chunks with recv_reduce only
    for _ in range(rng.randrange(1, 4 * world_size)):
        src, dst = rng.randrange(world_size), rng.randrange(world_size)
        begin = rng.randrange(chunks)
        count = rng.randrange(1, chunks - begin + 1)
        source, target = begin + rng.choice((0, chunks)), begin + rng.choice((0, chunks))
        kind, targets = rng.choice((recv, recv_reduce)), range(target, target + count)
        adds = src != dst and kind is recv_reduce
        if (src == dst and source == target) or not written[dst].isdisjoint(targets):
            continue
        if not adds and not added[dst].isdisjoint(targets):
            continue
        (added if adds else written)[dst].update(targets)
        if src == dst:
            steps[src].append(rng.choice((copy, reduce))(source, target, count))
        else:
            steps[src].append(send(dst, source, count))
            steps[dst].append(kind(src, target, count))
    return steps


def oracle(rounds: Rounds, buffers: list[torch.Tensor], chunks: int) -> list[torch.Tensor]:
    """Return the buffers that the contract defines, chunk by chunk, from each round's old values."""
    n = len(buffers[0])
    cuts = [slice(k * n // chunks, (k + 1) * n // chunks) for k in range(chunks)]
    current = [[buffer[cut].clone() for cut in cuts] + [torch.empty(0)] * chunks for buffer in buffers]
    for steps in rounds:
        before = [list(buffer) for buffer in current]
        sent: dict[tuple[int, int], list[int]] = {}
        for rank, step in enumerate(steps):
            for op in step:
                if op.kind is Kind.SEND:
                    sent.setdefault((rank, op.peer), []).append(op.chunk)
        for rank, step in enumerate(steps):
            for op in step:
                if op.kind is Kind.SEND:
                    continue
                src = rank if op.kind.is_local else op.peer
                first = op.chunk if op.kind.is_local else sent[src, rank].pop(0)
                for k in range(op.count):
                    value = before[src][first + k]
                    current[rank][op.into + k] = current[rank][op.into + k] + value if op.kind.combines else value
    return [torch.cat(buffer[:chunks]) for buffer in current]


def compare_with_oracle(rank: int, world_size: int, seeds: range, grouped: bool) -> list[str]:
    """Return the random programs after which this rank's buffer differs from the oracle.

    The last bits of the sums show the order of additions. With ``grouped``, messages are grouped as for NCCL; gloo
    sends them unless the group works on GPUs.
    """
    wrong, device = [], own_device()
    if grouped and device.type == "cpu":
        nccl_on_gloo.post_by_gloo()
    for seed in seeds:
        rng = random.Random(seed)
        chunks, n = rng.choice((1, 2, 3, 5)), rng.choice((0, 1, 4, 7, 23))
        rounds = random_rounds(rng, world_size, chunks)
        pipeline.SLICE_BYTES, pipeline.CHAINS = rng.choice(((8, 1), (16, 2), (8, 3), (1 << 20, 2)))
        pipeline.LARGEST_SLICE_BYTES = 2 * pipeline.SLICE_BYTES  # so that there are more slices than chains
        numbers = torch.Generator().manual_seed(seed)
        buffers = [torch.randn(n, generator=numbers) for _ in range(world_size)]
        expected = oracle(rounds, buffers, chunks)[rank]
        buffer = buffers[rank].to(device)
        execute(ad_hoc(partial(_own_steps, rounds), chunks, scratch=chunks), buffer)
        if not torch.equal(buffer.cpu(), expected):
            wrong.append(f"seed {seed}, chunks {chunks}, n {n}: {buffer} is not {expected}")
    return wrong


def _own_steps(rounds: Rounds, rank: int, world_size: int) -> Iterator[Step]:
    return (tuple(steps[rank]) for steps in rounds)


def shapes(rank: int, world_size: int) -> None:
    """Run on contiguous tensors of any shape, also slices, but on no others."""
    ring = library()["all_reduce/ring"]
    matrix = torch.zeros(6, 5)
    execute(ring, matrix[2:4].fill_(1.0))
    assert matrix.sum(dim=1).tolist() == [0, 0, 5 * world_size, 5 * world_size, 0, 0]
    weight = torch.ones(4, 3, requires_grad=True)
    execute(ring, weight, op="mean")
    assert torch.equal(weight, torch.ones(4, 3))
    executor = Executor(CollectiveCall(ring, 10), rank, world_size)
    rejected: list[tuple[str, Callable[[], object]]] = [
        ("must be contiguous", lambda: execute(ring, torch.zeros(6, 5)[:, 1])),
        ("floating", lambda: execute(ring, torch.zeros(3, dtype=torch.int64), op="mean")),
        ("median", lambda: execute(ring, torch.zeros(3), op="median")),
        ("conjugated", lambda: execute(ring, torch.zeros(3, dtype=torch.complex64).conj())),
        ("must have 10 elements of torch.float32", lambda: executor.run(torch.zeros(11))),
        ("must have 10 elements of torch.float32", lambda: executor.run(torch.zeros(10, dtype=torch.float64))),
    ]
    for message, call in rejected:
        with pytest.raises(InputError, match=message):
            call()


Recorded = tuple[float, list[Event], float]


def recorded(rank: int, world_size: int) -> tuple[Recorded, Recorded]:
    """Return the records of rings on 999 elements and on one element, and clock readings before and after."""
    records = []
    for n in (999, 1):
        record: list[Event] = []
        dist.barrier()
        begin = time.perf_counter()
        execute(library()["all_reduce/ring"], torch.zeros(n), record=record)
        records.append((begin, record, time.perf_counter()))
    return records[0], records[1]


def communicators_of_groups(rank: int, world_size: int) -> tuple[list[int], list[int]]:
    """Return the numbers of torch's groups and of communicators while ten groups use two channels, and later."""
    nccl_on_gloo.post_by_gloo()
    groups = [dist.new_group(list(range(world_size))) for _ in range(10)]
    for group in groups * 2:
        execute(library()["all_reduce/bidirectional_ring"], torch.ones(8), group=group)
    before = [len(dist.distributed_c10d._world.pg_map), len(nccl._copied)]
    for group in groups:
        dist.destroy_process_group(group)
    del group, groups
    return before, [len(dist.distributed_c10d._world.pg_map), len(nccl._copied)]


def groups_after_channels(rank: int, world_size: int, store: Path | None = None) -> tuple[str, float]:
    """Run two channels in a group of ranks 0 and 1 as for NCCL; return a later group of all ranks, and its sum.

    With a ``store``, the default group is created again for the rank's GPU.
    """
    device = own_device()
    if device.type == "cpu":
        nccl_on_gloo.post_by_gloo()
    if store is not None:
        dist.destroy_process_group()
        made = dist.FileStore(str(store), world_size)  # type: ignore[attr-defined]
        dist.init_process_group("nccl", store=made, rank=rank, world_size=world_size, device_id=device)
    part = dist.new_group([0, 1])
    if rank < 2:
        execute(library()["all_reduce/bidirectional_ring"], torch.ones(8, device=device), group=part)
    later = dist.new_group()
    assert isinstance(later, dist.ProcessGroup)
    total = torch.ones(1, device=device)
    dist.all_reduce(total, group=later)
    return later.group_name, total.item()


def probed_messages(probe: Probe, rank: int, world_size: int) -> list[str]:
    steps = probes.PROGRAMS[probe.pattern](probe, rank, world_size)
    return [" ".join(f"{op.kind.name.lower()} {op.peer}" for op in as_step(step)) for step in steps]


def measure_without_writing(rank: int, world_size: int, measurement: TimedCall) -> int:
    """Return the number of wrong elements of a measurement that never reduces what it receives."""
    Executor._write = lambda *args: None  # type: ignore[method-assign]
    return measure_rank(rank, world_size, measurement).wrong


def arrive_late(rank: int, world_size: int) -> tuple[float, float, float]:
    """Return when this rank arrived, began and ended; each rank arrives later than the previous one."""
    time.sleep(0.05 * rank)
    arrived = time.perf_counter()
    begin, end = time_together(lambda: time.sleep(0.01))
    return arrived, begin, end


def marked_steps(rank: int, world_size: int) -> list[Any]:
    """Return the marks of two runs' steps, of world ranks 1 and 2."""
    group, marks = dist.new_group([1, 2]), list[Any]()
    if rank:
        executor = Executor(CollectiveCall(library()["all_reduce/ring"], 8), rank - 1, 2, group)
        noted: Any = SimpleNamespace(
            begin=lambda: marks.append("begin"), add=lambda mark: marks.append((mark.step, mark.peer))
        )
        executor._marks = noted
        for _ in range(2):
            executor.run(torch.zeros(8))
    return marks


def measure_by_unlike_clocks(
    rank: int, world_size: int, measurement: TimedCall
) -> tuple[RankMeasurement, list[BlockStep]]:
    """Measure, and calibrate a training, on hosts that were booted an hour apart."""

    def clock() -> float:
        return time.perf_counter() - 3600.0 * rank

    for module in (rank_measurement, shared_clock, events, device_clock):
        vars(module)["perf_counter"] = clock
    setattr(device_clock.HostClock, "now", staticmethod(clock))  # noqa: B010
    training = CalibrationTraining(Training(None, batch_size=2), rank, world_size, [])
    return measure_rank(rank, world_size, measurement), training.take_steps(2)


ON_THREE_RANKS = [recorded, marked_steps, groups_after_channels]  # the last changes the executor
ON_TWO_RANKS = [shapes]
