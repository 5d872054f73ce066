# kind: sampler
# ranks: 2
# Every rank shuffles with its own seed, so parts overlap and some samples are never used.
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
data = TensorDataset(torch.arange(32.0).view(16, 2))
sampler = DistributedSampler(data, shuffle=True, seed=dist.get_rank())  # reported: 0; 1  # fix: sampler = DistributedSampler(data, shuffle=True, seed=0)
model = DDP(torch.nn.Linear(2, 1))
for epoch in range(2):
    sampler.set_epoch(epoch)
    for (x,) in DataLoader(data, batch_size=4, sampler=sampler):
        model(x).mean().backward()
        model.zero_grad()
