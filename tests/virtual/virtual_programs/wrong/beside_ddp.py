# kind: reduced twice
# ranks: 2
# A loop with hand-written gradient averaging, around a model that is now wrapped in DDP.
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
model = DDP(net)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for _ in range(2):
    opt.zero_grad()
    model(torch.randn(4, 4)).mean().backward()
    for p in net.parameters():  # fix:
        dist.all_reduce(p.grad)  # reported: 0-1  # fix:
        p.grad /= dist.get_world_size()  # fix:
    opt.step()
