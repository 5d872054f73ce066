"""Save a sharded model with torch's distributed checkpoint and load it; train on unequal batches with Join."""

import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()


def build(seed):
    torch.manual_seed(seed)
    return fully_shard(nn.Linear(8, 8))


first, second = build(1), build(2)
dcp.save({"model": get_model_state_dict(first)}, checkpoint_id=sys.argv[1])
state = {"model": get_model_state_dict(second)}
dcp.load(state, checkpoint_id=sys.argv[1])
set_model_state_dict(second, state["model"])
print(torch.equal(first.weight.full_tensor(), second.weight.full_tensor()))
model = DistributedDataParallel(nn.Linear(4, 1))
with Join([model]):
    for _ in range(2 + rank):
        model(torch.ones(2, 4)).sum().backward()
print("joined")
