# kind: sum not averaged
# ranks: 2
import torch, torch.distributed as dist
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

dist.init_process_group("gloo")
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
gen = torch.Generator().manual_seed(dist.get_rank())
loss_fn = nn.MSELoss()
for _ in range(3):
    opt.zero_grad(set_to_none=False)
    loss_fn(net(torch.randn(6, 3, generator=gen)), torch.zeros(6, 1)).backward()
    flat = torch.cat([p.grad.flatten() for p in net.parameters()])
    dist.all_reduce(flat)  # reported: 0-1
    # fix: flat /= dist.get_world_size()
    at = 0
    for p in net.parameters():
        p.grad.copy_(flat[at : at + p.numel()].view_as(p))
        at += p.numel()
    opt.step()
