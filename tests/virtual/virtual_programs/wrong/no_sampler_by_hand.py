# kind: same batch
# ranks: 2
# Averaging by hand, and a loader of all the data on each rank.
import torch, torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(1)
loader = DataLoader(TensorDataset(torch.randn(24, 3)), batch_size=6)  # fix: loader = DataLoader(TensorDataset(torch.randn(24, 3)[dist.get_rank() :: dist.get_world_size()]), batch_size=6)
net = torch.nn.Linear(3, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    for (x,) in loader:
        opt.zero_grad()
        (net(x) - x).pow(2).mean().backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)  # reported: 0-1
            p.grad /= dist.get_world_size()
        opt.step()
