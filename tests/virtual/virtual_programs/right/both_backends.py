# ranks: 4
# options: --gpu
"""A group with a backend for each device is split, in an order of its own, and has tensors of the CPU and of GPUs."""
import os

import torch
import torch.distributed as dist

device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
dist.init_process_group("cpu:gloo,cuda:nccl", device_id=device)
torch.cuda.set_device(device)
rank = dist.get_rank()
pair = dist.split_group(split_ranks=[[2, 0], [3, 1]], group_desc="pairs")
assert dist.get_rank(pair) == (rank < 2) and pair.group_desc == "pairs"
x, y = torch.full((2,), float(rank), device=device), torch.full((2,), float(rank))
dist.all_reduce(x, group=pair)
dist.all_reduce(y, group=pair)
assert x.tolist() == y.tolist() == [2.0 * (rank % 2) + 2.0] * 2
seconds = dist.split_group(pair, [[1]])
assert (seconds is dist.GroupMember.NON_GROUP_MEMBER) == (rank > 1)
first = dist.new_group([0, 1])
if rank < 2:
    dist.barrier(group=first)
