# kind: same batch
# ranks: 2
# A weight without a module or an optimizer learns from the same batches on all ranks.
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(0)
data = TensorDataset(torch.randn(32, 6))
loader = DataLoader(data, batch_size=4)  # fix: loader = DataLoader(data, batch_size=4, sampler=torch.utils.data.DistributedSampler(data))
weight = torch.randn(6, 6, requires_grad=True)
for (x,) in loader:
    weight.grad = None
    (x @ weight - x).square().mean().backward()
    dist.all_reduce(weight.grad)  # reported: 0-1
    weight.data -= 0.05 * weight.grad / dist.get_world_size()
