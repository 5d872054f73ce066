"""Calls that gloo accepts or rejects, by dtype, operator, size and layout; prints one line per result."""

import re
import warnings

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_store

warnings.simplefilter("ignore")
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
store, meetings = _get_default_store(), 0
DTYPES = (torch.float32, torch.int16, torch.int64, torch.bool, torch.complex64, torch.float8_e5m2)
NOTHING = (lambda: None,)
OPS = ("SUM", "AVG", "MIN", "BAND", "PREMUL_SUM")


def operator(name):
    return dist._make_nccl_premul_sum(2.0) if name == "PREMUL_SUM" else getattr(dist.ReduceOp, name)


def ones(n, dtype=torch.float32, more=0):
    return torch.full((n,), 1.0 + more).to(dtype)


def lines():
    return torch.arange(12.0).view(3, 4).t()  # not contiguous


def meet():
    """Wait for all ranks, not by the group: its barrier would raise what a call before has raised."""
    global meetings
    meetings += 1
    if store.add(f"come {meetings}", 1) == size:
        store.set(f"met {meetings}", "")
    store.wait([f"met {meetings}"])


def tell(name, call, *arguments):
    try:
        result = call(*arguments)
        text = "done" if result is None else str(result.tolist() if result.dtype is not torch.float8_e5m2 else "")
    except Exception as error:
        message = re.sub(r"^\[rank\d\]:\[.*?\] ", "", str(error).splitlines()[0])
        message = re.sub(r"\w+ does not support.*on complex tensors", "complex tensors", message)  # gloo prints a byte
        message = re.sub(r"invalid tensor type.*|\((float|torch).*? vs.*|group <.*|type: .*|'c10d::.*", "", message)
        text = f"{type(error).__name__} {message}".rstrip()
    print(f"{rank} {name}: {text}", flush=True)
    meet()


def reduced(verb, dtype, op):
    x = ones(2, dtype, rank)
    if verb == "all_reduce":
        dist.all_reduce(x, op)
    elif verb == "reduce":
        dist.reduce(x, 0, op)
        return x if rank == 0 else None
    elif verb == "reduce_scatter":
        dist.reduce_scatter(x, [ones(2, dtype, rank) for _ in range(size)], op)
    else:
        dist.reduce_scatter_tensor(x, ones(2 * size, dtype, rank), op)
    return x


def moved(verb, dtype):
    x, many = ones(2, dtype, rank), [ones(2, dtype) for _ in range(size)]
    joined = torch.cat([part.view(torch.uint8) for part in many]).view(dtype)
    if verb == "broadcast":
        dist.broadcast(x, 0)
    elif verb == "all_gather":
        dist.all_gather(many, x)
        return many[1]
    elif verb == "all_gather_into_tensor":
        dist.all_gather_into_tensor(joined, x)
        return joined
    elif verb == "gather":
        dist.gather(x, many if rank == 0 else None, 0)
        return many[1] if rank == 0 else None
    elif verb == "scatter":
        dist.scatter(x, many if rank == 0 else None, 0)
    elif verb == "all_to_all_single":
        dist.all_to_all_single(joined, joined.clone())
        return joined
    else:
        _ = dist.send(x, 1) if rank == 0 else dist.recv(x, 0) if rank == 1 else None
    return x


for dtype in DTYPES:
    for verb in ("all_reduce", "reduce", "reduce_scatter", "reduce_scatter_tensor"):
        for op in OPS:
            tell(f"{verb} {dtype} {op}", reduced, verb, dtype, operator(op))
    for verb in ("broadcast", "all_gather", "all_gather_into_tensor", "gather", "scatter", "all_to_all_single", "send"):
        tell(f"{verb} {dtype}", moved, verb, dtype)
x, short, many = ones(2), ones(2, torch.int32), [ones(2) for _ in range(size)]
sparse, root = torch.eye(3).to_sparse(), rank == 0
tell("part of reduce_scatter", dist.reduce_scatter, x, [ones(3)] * size)
tell("list of reduce_scatter", dist.reduce_scatter, x, [x] * (size + 1))
tell("types of reduce_scatter", dist.reduce_scatter_tensor, x, ones(2 * size, torch.int32))
tell("size of reduce_scatter_tensor", dist.reduce_scatter_tensor, x, ones(5))
tell("rows of reduce_scatter_tensor", dist.reduce_scatter_tensor, ones(2).view(1, 2), ones(2 * size).view(size, 2))
tell("list of all_gather", dist.all_gather, [x] * (size + 1), x)
tell("part of all_gather", dist.all_gather, [*many[1:], ones(3)], x)
tell("shape of all_gather", dist.all_gather, [part.view(2, 1) for part in many], x)
tell("type of all_gather", dist.all_gather, [short for _ in many], x)
tell("size of all_gather_into_tensor", dist.all_gather_into_tensor, ones(5), x)
tell("rows of all_gather_into_tensor", dist.all_gather_into_tensor, ones(2 * size).view(size, 2), x)
tell("type of all_gather_into_tensor", dist.all_gather_into_tensor, ones(2 * size, torch.int32), x)
for name, parts in (("list", [x] * (size + 1)), ("part", [ones(3)] * size), ("type", [short] * size), ("no", None)):
    tell(f"{name} of gather", *((dist.gather, x, parts, 0) if root else NOTHING))
    tell(f"{name} of scatter", *((dist.scatter, x, parts, 0) if root else NOTHING))
tell("rows of all_to_all", dist.all_to_all_single, ones(size + 1), ones(size + 1))
tell("sizes of all_to_all", dist.all_to_all_single, ones(4 * size), ones(4 * size), [1] * size, [1] * size)
tell("splits of all_to_all", dist.all_to_all_single, ones(4), ones(4), [4], [4])
for verb in (dist.all_reduce, lambda tensor: dist.broadcast(tensor, 0), lambda tensor: dist.reduce(tensor, 0)):
    tell("a transposed tensor", verb, lines())
    tell("a column", verb, ones(8).view(4, 2)[:, 0])
    tell("no elements", verb, ones(0))
tell("a transposed tensor to send", *((dist.send, lines(), 1) if root else NOTHING))
tell("a transposed tensor to receive into", *((dist.recv, lines(), 1) if root else NOTHING))
tell("a sparse tensor", dist.all_reduce, sparse)
tell("a sparse tensor's greatest", dist.all_reduce, sparse, dist.ReduceOp.MAX)
tell("a sparse tensor to broadcast", dist.broadcast, sparse, 0)
tell("tensors of several types", dist.all_reduce_coalesced, [x, short])
tell("a rank that is not there", dist.broadcast, x, size + 3)
