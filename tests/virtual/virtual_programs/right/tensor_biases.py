# ranks: 4
# Two tensor ranks by two data ranks: each tensor rank has its own bias, which starts at zero on all ranks.
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank = dist.get_rank()
data = [dist.new_group([0, 2]), dist.new_group([1, 3])][rank % 2]
tensor = [dist.new_group([0, 1]), dist.new_group([2, 3])][rank // 2]
torch.manual_seed(rank % 2)
part = nn.Linear(4, 4)
nn.init.zeros_(part.bias)
torch.manual_seed(5)
shared = nn.Linear(4, 1)
opt = torch.optim.SGD([*part.parameters(), *shared.parameters()], lr=0.1)
torch.manual_seed(10 + rank // 2)
for _ in range(3):
    opt.zero_grad()
    x = torch.randn(3, 4)
    h = part(x)
    total = h.detach().clone()
    dist.all_reduce(total, group=tensor)
    (shared(h + (total - h.detach())) - 1).square().mean().backward()
    for p in part.parameters():
        dist.all_reduce(p.grad, group=data)
        p.grad /= 2
    for p in shared.parameters():
        dist.all_reduce(p.grad)
        p.grad /= 4
    opt.step()
