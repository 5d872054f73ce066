# kind: set_epoch
# ranks: 2
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(0)
data = TensorDataset(torch.randn(16, 4))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
model = DDP(torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    # fix: loader.sampler.set_epoch(epoch)
    for (x,) in loader:  # reported: 0-1
        opt.zero_grad()
        model(x).square().mean().backward()
        opt.step()
