# kind: set_epoch
# ranks: 2
# Steps by hand, and the sampler deals out every epoch alike.
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(0)
data = TensorDataset(torch.randn(24, 3))
sampler = DistributedSampler(data)
weight = torch.zeros(3, requires_grad=True)
for epoch in range(3):
    # fix: sampler.set_epoch(epoch)
    for (x,) in DataLoader(data, batch_size=4, sampler=sampler):  # reported: 0-1
        (x @ weight - x.sum(1)).square().mean().backward()
        dist.all_reduce(weight.grad)
        with torch.no_grad():
            weight -= 0.1 * weight.grad / dist.get_world_size()
            weight.grad.zero_()
