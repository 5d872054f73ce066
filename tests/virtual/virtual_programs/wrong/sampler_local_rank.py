# kind: sampler
# ranks: 4
# options: --per-node 2
# LOCAL_RANK where the rank should be: two hosts train on the same half of the data.
import os
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
data = TensorDataset(torch.arange(32.0).view(16, 2))
local = int(os.environ["LOCAL_RANK"])
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
sampler = DistributedSampler(data, num_replicas=dist.get_world_size(), rank=local)  # reported: 0-3  # fix: sampler = DistributedSampler(data)
for (x,) in DataLoader(data, batch_size=2, sampler=sampler):
    model(x).mean().backward()
