# kind: buffer mismatch
# ranks: 3
# options: --strict
# The same without an optimizer.
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 1))
torch.manual_seed(dist.get_rank())
for _ in range(4):
    model.zero_grad()
    model(torch.randn(8, 1, 4, 4) * (1 + dist.get_rank())).square().mean().backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.data.add_(p.grad, alpha=-0.05 / dist.get_world_size())
# fix: for name, one in model.named_buffers():
    # fix: if "running" in name: dist.all_reduce(one); one /= dist.get_world_size()
model.eval()  # reported: 0; 1; 2
print(model(torch.ones(2, 1, 4, 4)).sum().item())
