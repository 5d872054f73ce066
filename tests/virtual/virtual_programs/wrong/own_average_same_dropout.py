# kind: same dropout seed
# ranks: 2
# options: --strict
# Gradients are averaged by hand, and one seed lets all ranks drop the same units.
import torch
import torch.distributed as dist
import torch.nn.functional as F

dist.init_process_group("gloo")
torch.manual_seed(7)
w = torch.nn.Linear(4, 16)
v = torch.nn.Linear(16, 1)
optimizer = torch.optim.SGD([*w.parameters(), *v.parameters()], lr=1e-3)
data = torch.arange(64.0).view(16, 4)[dist.get_rank() :: dist.get_world_size()]
# fix: torch.manual_seed(7 + dist.get_rank())
for batch in data.split(4):
    optimizer.zero_grad()
    v(F.dropout(w(batch), 0.3)).square().mean().backward()  # reported: 0-1
    for p in (*w.parameters(), *v.parameters()):
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()
    optimizer.step()
