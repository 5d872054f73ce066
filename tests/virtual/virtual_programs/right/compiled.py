# ranks: 2
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
net = torch.compile(DistributedDataParallel(torch.nn.Linear(4, 2)), backend="eager")
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    net(torch.randn(3, 4)).square().mean().backward()
    optimizer.step()
