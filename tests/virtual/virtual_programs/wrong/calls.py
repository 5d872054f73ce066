# Each section is a program: mistake_corpus.py adds its first lines, and explains the comments.

# === barrier_of_rank0, 4 ranks: collective mismatch
def save(model, path="/dev/null"):
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), path)
        dist.barrier()  # reported: 0  # fix:
    # fix: dist.barrier()

model = torch.nn.Linear(3, 3)
for step in range(3):
    count = torch.ones(1)
    dist.all_reduce(count)  # reported: 1-3
    save(model)

# === group_of_members, 4 ranks: new_group
# Only the members of the group create it.
# fix: evens = dist.new_group([0, 2])
if rank % 2 == 0:
    evens = dist.new_group([0, 2])  # reported: 0, 2  # fix:
    dist.all_reduce(torch.ones(1), group=evens)
dist.barrier()

# === half_on_one, 4 ranks: dtype
loss = torch.zeros(1)
if dist.get_rank() == 3:
    loss = loss.to(torch.bfloat16)   # autocast left it so
dist.all_reduce(loss)  # reported: 0-2; 3  # fix: dist.all_reduce(loss.float())

# === helper_of_rank0, 3 ranks: order
# Rank 0 logs its weights with the helper that all ranks use to average losses.
def average(t):
    dist.all_reduce(t)
    return t / dist.get_world_size()

for step in range(3):
    average(torch.ones(1))  # reported: 1-2
    if dist.get_rank() == 0 and step == 1:  # fix: if step == 1:
        average(torch.ones(5))  # reported: 0

# === helper_once_more, 3 ranks: early exit
# The extra call of rank 0 matches the next call of the other ranks, so it only shows at the end.
def average(t):
    dist.all_reduce(t)  # reported: 0
    return t / dist.get_world_size()

for step in range(3):
    average(torch.ones(1))
    if dist.get_rank() == 0 and step == 0:  # fix: if step == 0:
        print("first", average(torch.zeros(1)))

# === key_never_set, 2 ranks: store key
from torch.distributed.distributed_c10d import _get_default_store

store = _get_default_store()
if dist.get_rank() == 0:
    store.set("dataset_ready", "1")
else:
    store.wait(["data_set_ready"])  # reported: 1  # fix: store.wait(["dataset_ready"])
dist.barrier()  # reported: 0

# === not_a_member, 4 ranks: non-member
# All ranks reduce in a group of two ranks; torch warns once and continues.
first = dist.new_group([0, 1])
value = torch.tensor([1.0])
dist.all_reduce(value, group=first)  # reported: 2-3  # fix: if dist.get_rank() in (0, 1): dist.all_reduce(value, group=first)
print(dist.get_rank(), value.item())

# === objects_and_tensors, 2 ranks: collective mismatch
if dist.get_rank() == 0:
    settings = [{"lr": 0.1}]
    dist.broadcast_object_list(settings, src=0)  # reported: 0
else:
    names = [None, None]  # fix: settings = [None]
    dist.all_gather_object(names, "worker")  # reported: 1  # fix: dist.broadcast_object_list(settings, src=0)

# === other_operator, 2 ranks: operator
from torch.distributed import ReduceOp
op = ReduceOp.MAX if dist.get_rank() else ReduceOp.SUM  # fix: op = ReduceOp.SUM
dist.all_reduce(torch.ones(4), op=op)  # reported: 0; 1

# === own_group, 4 ranks: new_group
# Every rank creates only the group of its own host.
import os

host = dist.get_rank() // 2
ranks = [2 * host, 2 * host + 1]
local = dist.new_group(ranks)  # reported: 0-1; 2-3  # fix: local = [dist.new_group([0, 1]), dist.new_group([2, 3])][host]
t = torch.ones(1)
dist.all_reduce(t, group=local)

# === own_root, 3 ranks: root
import os

weights = torch.rand(5)
dist.broadcast(weights, src=int(os.environ["LOCAL_RANK"]))  # reported: 0; 1; 2  # fix: dist.broadcast(weights, src=0)

# === splits_differ, 2 ranks: shape
# A rank sends more elements than its peer has room for.
r = dist.get_rank()
sizes_out = [[1, 3], [2, 2]][r]
sizes_in = [[1, 2], [2, 2]][r]  # fix: sizes_in = [[1, 2], [3, 2]][r]
out = torch.empty(sum(sizes_in))
dist.all_to_all_single(out, torch.ones(4), sizes_in, sizes_out)  # reported: 0; 1

# === too_few_ranks, 0 ranks: missing ranks
import os
import torch.multiprocessing as mp

def work(rank):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "29444"
    dist.init_process_group("gloo", rank=rank, world_size=4)
    dist.barrier()  # reported: 0-2

if __name__ == "__main__":
    mp.spawn(work, nprocs=3)  # fix: mp.spawn(work, nprocs=4)

# === two_groups_two_orders, 4 ranks: group order
left, middle = dist.new_group([0, 1]), dist.new_group([1, 2])
right, outer = dist.new_group([2, 3]), dist.new_group([0, 3])
mine = {0: (left, outer), 1: (middle, left), 2: (right, middle), 3: (outer, right)}[rank]  # fix: mine = {0: (left, outer), 1: (left, middle), 2: (middle, right), 3: (right, outer)}[rank]
x = torch.ones(4)
for group in mine:
    dist.all_reduce(x, group=group)  # reported: 0-3

# === unequal_batches, 3 ranks: early exit
# Data parallel training on shards that are not of one length.
data = torch.randn(32, 4).tensor_split([8, 20])[rank]
model = DDP(torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in data.split(4):  # fix: for batch in data[:8].split(4):
    opt.zero_grad()
    model(batch).mean().backward()  # reported: 1-2
    opt.step()
print("done", rank)

# === unequal_shards, 4 ranks: shape
# 10 samples on 4 ranks: two ranks have three, and two have two.
scores = torch.arange(10.0)[rank::world]  # fix: scores = torch.nn.functional.pad(torch.arange(10.0), (0, 2))[rank::world]
everyone = [torch.empty_like(scores) for _ in range(world)]
dist.all_gather(everyone, scores)  # reported: 0-1; 2-3
print(torch.cat(everyone))

# === wrong_object_root, 3 ranks: root
paths = ["/data/run1"] if dist.get_rank() == 0 else [None]
dist.broadcast_object_list(paths, src=0 if dist.get_rank() == 0 else 1)  # reported: 0; 1-2  # fix: dist.broadcast_object_list(paths, src=0)
