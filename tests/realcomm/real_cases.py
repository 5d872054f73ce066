"""Workers that compare every algorithm on every kind of tensor with torch's own collectives."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
import torch.distributed as dist

from collectives.call import CollectiveCall, part_slice, round_down
from collectives.catalogue import library
from collectives.declaration import Algorithm
from collectives.pipeline import pipeline
from collectives.schedule.build import build_schedule
from collectives.spec import Spec
from realcomm.execution.executor import Executor, dtype_name
from realcomm.execution.own_collective import REDUCE

TYPED_OPS = [
    *((torch.float32, op) for op in ("mean", "min", "max", "product")),
    *((torch.int64, op) for op in ("sum", "min", "max", "product")),
    *((torch.float64, op) for op in ("sum", "mean")),
    *((dtype, "sum") for dtype in (torch.float16, torch.bfloat16, torch.int8, torch.int32)),
    (torch.uint8, "max"),
]
SLICES = 64, 1 << 20  # bytes: so that some hundred numbers travel in many slices, or in one


class Case(NamedTuple):
    algorithm: Algorithm
    n: int  # rounded down for all_to_all
    dtype: torch.dtype = torch.float32
    op: str = "sum"
    root: int = 0
    slice_bytes: int = SLICES[1]


def start(rank: int, n: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return small integers that differ along the buffer and between ranks; products of nine are exact too."""
    places = torch.arange(n)
    return ((places * 7 + rank * 5) % 4 + (1 if rank % 2 else 0)).to(dtype)


def cases(world_size: int, all_lengths: bool) -> Iterator[Case]:
    """Yield every algorithm at every special length and root, and with every dtype; or a sample."""
    lengths = {0, 1, 2, 3, world_size - 1, world_size, world_size + 1, 1003} if all_lengths else {1, world_size + 1}
    for algorithm in library().values():
        roots = sorted({0, world_size - 1}) if algorithm.spec.rooted else [0]
        yield from (Case(algorithm, n, root=root) for n in sorted(lengths) for root in roots)
        yield Case(algorithm, 1003 if all_lengths else 203, torch.float64, root=roots[-1], slice_bytes=SLICES[0])
        if algorithm.spec.reduces and all_lengths:
            yield from (Case(algorithm, 37, dtype, op, roots[-1]) for dtype, op in TYPED_OPS)


def compare_with_torch(rank: int, world_size: int, selection: Sequence[Case] | bool) -> tuple[int, list[str]]:
    """Return the number of cases, and those after which this rank has wrong data or has sent wrong messages."""
    tried, wrong = 0, []
    expected_of, traced = lru_cache(maxsize=None)(torchs_own), lru_cache(maxsize=None)(build_schedule)
    for case in cases(world_size, all_lengths=selection) if isinstance(selection, bool) else selection:
        tried += 1
        algorithm, root = case.algorithm, case.root
        n = max(round_down(algorithm, case.n, world_size), int(algorithm.spec.repeats))
        tensor = start(rank, n, case.dtype)
        pipeline.SLICE_BYTES, pipeline.LARGEST_SLICE_BYTES = case.slice_bytes, 4 * case.slice_bytes
        expected = expected_of(algorithm.spec, rank, n, case.dtype, case.op, root)
        executor = Executor(CollectiveCall(algorithm, n, dtype_name(case.dtype), case.op, root), rank, world_size)
        executor.run(tensor)
        sent = traced(algorithm, world_size, root).elements_sent(n)[rank] * case.dtype.itemsize
        if expected is not None and not torch.equal(tensor[expected[0]], expected[1]):
            wrong.append(f"{algorithm.full_name} {case[1:]}: {tensor[expected[0]]} is not {expected[1]}")
        if executor.bytes_sent != sent:
            wrong.append(f"{algorithm.full_name} {case[1:]}: {executor.bytes_sent} bytes were sent, not {sent}")
    return tried, wrong


def torchs_own(
    spec: Spec, rank: int, n: int, dtype: torch.dtype, op: str, root: int
) -> tuple[slice, torch.Tensor] | None:
    """Return the defined elements of this rank, and their slice, from torch's broadcasts, reductions and gathers."""
    world_size, tensor = dist.get_world_size(), start(rank, n, dtype)
    parts = spec.result(rank, world_size, root)
    if spec.name in ("broadcast", "scatter"):
        dist.broadcast(tensor, root)
    elif spec.name in ("gather", "all_gather", "all_to_all"):
        everyones = [torch.empty_like(tensor) for _ in range(world_size)]
        dist.all_gather(everyones, tensor)
        cuts = [part_slice(spec.origin(rank, part), n, world_size) for part in range(world_size)]
        tensor = torch.cat([data[cut] for data, cut in zip(everyones, cuts, strict=True)])
    elif spec.reduces:
        dist.all_reduce(tensor, REDUCE[op])
        tensor = tensor / world_size if op == "mean" else tensor
    if not parts or spec.repeats:
        return None
    where = slice(parts.start * n // world_size, parts.stop * n // world_size)
    return where, tensor[where]
