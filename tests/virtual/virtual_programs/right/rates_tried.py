# ranks: 2
"""The same epochs for a model of each learning rate, by one loader."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
generator = torch.Generator().manual_seed(0)
data = TensorDataset(torch.randn(32, 8, generator=generator))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler)
for rate in (0.1, 0.01):
    torch.manual_seed(0)
    model = DDP(torch.nn.Linear(8, 8))
    opt = torch.optim.SGD(model.parameters(), lr=rate)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for (x,) in loader:
            opt.zero_grad()
            (model(x) - x).square().mean().backward()
            opt.step()
dist.destroy_process_group()
