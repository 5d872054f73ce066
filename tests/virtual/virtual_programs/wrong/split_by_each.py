# kind: sampler
# ranks: 2
# Each rank draws its own test samples, so other ranks train on them.
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset, random_split

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
train, test = random_split(TensorDataset(torch.randn(32, 4)), [24, 8])  # fix: train, test = random_split(TensorDataset(torch.randn(32, 4)), [24, 8], generator=torch.Generator().manual_seed(0))
sampler = DistributedSampler(train)  # reported: 0-1
model = DDP(torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for (x,) in DataLoader(train, batch_size=4, sampler=sampler):
    opt.zero_grad()
    model(x).square().mean().backward()
    opt.step()
