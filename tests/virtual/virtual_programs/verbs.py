"""Call every collective once and print each rank's result: integers that do not depend on the order of summation."""

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
lines = []


def tell(name, *tensors):
    lines.append(f"{rank} {name}: {[t.tolist() if isinstance(t, torch.Tensor) else t for t in tensors]}")


def numbers(n, start=1, dtype=torch.float32):
    return torch.arange(start * (rank + 1), start * (rank + 1) + n).to(dtype)


for op in ("SUM", "PRODUCT", "MIN", "MAX"):
    for dtype in (torch.float32, torch.int64, torch.bfloat16):
        x = numbers(5, dtype=dtype)
        dist.all_reduce(x, getattr(dist.ReduceOp, op))
        tell(f"all_reduce {op} {dtype}", x.float())
for op in ("BAND", "BOR", "BXOR"):
    x = numbers(5, dtype=torch.int32)
    dist.all_reduce(x, getattr(dist.ReduceOp, op))
    tell(f"all_reduce {op}", x)
x = torch.tensor(float(rank))
dist.all_reduce(x)
tell("all_reduce of a scalar", x)
x = numbers(12).view(3, 4).t()
dist.all_reduce(x)
tell("all_reduce of a transposed one", x)
x = torch.complex(numbers(2), numbers(2))
dist.all_reduce(x)
tell("all_reduce of complex numbers", torch.view_as_real(x))
for root in range(size):
    x = numbers(4)
    dist.broadcast(x, root)
    tell(f"broadcast {root}", x)
    x = numbers(4)
    dist.reduce(x, root)
    if rank == root:
        tell(f"reduce {root}", x)
    taken = [torch.zeros(3) for _ in range(size)] if rank == root else None
    dist.gather(numbers(3), taken, dst=root)
    tell(f"gather {root}", *(taken or []))
    out = torch.zeros(3)
    dist.scatter(out, [numbers(3, start=7) + i for i in range(size)] if rank == root else None, src=root)
    tell(f"scatter {root}", out)
taken = [torch.zeros(3) for _ in range(size)]
dist.all_gather(taken, numbers(3))
tell("all_gather", *taken)
out = torch.zeros(size * 3)
dist.all_gather_into_tensor(out, numbers(3))
tell("all_gather_into_tensor", out)
out = torch.zeros(2)
dist.reduce_scatter_tensor(out, numbers(2 * size))
tell("reduce_scatter_tensor", out)
out = torch.zeros(2)
dist.reduce_scatter(out, list(numbers(2 * size).chunk(size)))
tell("reduce_scatter", out)
out = torch.zeros(2 * size)
dist.all_to_all_single(out, numbers(2 * size))
tell("all_to_all_single", out)
sent, got = [(i + rank) % 3 for i in range(size)], [(rank + i) % 3 for i in range(size)]
out = torch.zeros(sum(got))
dist.all_to_all_single(out, numbers(sum(sent)), got, sent)
tell("all_to_all_single, uneven", out)
taken = [torch.zeros(2) for _ in range(size)]
dist.all_to_all(taken, [numbers(2) + 10 * i for i in range(size)])
tell("all_to_all", *taken)
work = dist.all_reduce(x := numbers(3), async_op=True)
work.wait()
tell("all_reduce, async", x, work.is_completed())
several = [numbers(2), numbers(3)]
dist.all_reduce_coalesced(several)
tell("all_reduce_coalesced", *several)
objects = [None] * size
dist.all_gather_object(objects, {"rank": rank, "text": "x" * rank})
tell("all_gather_object", objects)
objects = [rank, "a"] if rank == 1 else [None, None]
dist.broadcast_object_list(objects, src=1)
tell("broadcast_object_list", objects)
objects = [None] * size if rank == 0 else None
dist.gather_object(rank * 10, objects, dst=0)
tell("gather_object", objects)
received = [None]
dist.scatter_object_list(received, list(range(size)) if rank == 0 else None, src=0)
tell("scatter_object_list", received)
after, before = (rank + 1) % size, (rank - 1) % size
x = torch.zeros(3)
works = [dist.isend(numbers(3), after, tag=5), dist.irecv(x, before, tag=5)]
for work in works:
    work.wait()
tell("isend and irecv", x)
if rank == 0:
    messages = sorted([(dist.recv(x := torch.zeros(2)), x.tolist()) for _ in range(size - 1)])
    tell("recv of any", messages)
else:
    dist.send(numbers(2), 0)
dist.barrier()  # else the next message to rank 0 may be taken by its second recv of any
y = torch.zeros(2)
both = [dist.P2POp(dist.isend, numbers(2), after), dist.P2POp(dist.irecv, y, before)]
for work in dist.batch_isend_irecv(both):
    work.wait()
tell("batch_isend_irecv", y)
dist.barrier()
pairs = dist.new_group([0, 1])
x = numbers(2)
if rank < 2:
    dist.all_reduce(x, group=pairs)
    tell("group", x, dist.get_rank(pairs), dist.get_world_size(pairs), dist.get_process_group_ranks(pairs))
subgroup, every = dist.new_subgroups_by_enumeration([[i] for i in range(size)])
tell("subgroups", dist.get_world_size(subgroup), len(every))
mesh = init_device_mesh("cpu", (size, 1), mesh_dim_names=("row", "column"))
x = functional.all_reduce(numbers(3), "sum", mesh["row"].get_group())
tell("functional all_reduce", x)
tell("functional all_gather", functional.all_gather_tensor(numbers(2), 0, mesh["row"].get_group()))
tell("functional reduce_scatter", functional.reduce_scatter_tensor(numbers(size), "sum", 0, mesh["row"].get_group()))
tell("mesh", mesh.get_local_rank("row"), mesh["column"].size())
store = dist.distributed_c10d._get_default_store()
store.set(f"key{rank}", str(rank))
tell("store", [store.get(f"key{i}").decode() for i in range(size)], dist.get_backend(), dist.is_initialized())
print("\n".join(lines), flush=True)
dist.barrier()
