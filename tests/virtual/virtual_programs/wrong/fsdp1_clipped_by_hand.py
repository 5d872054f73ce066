# kind: gradient scale mismatch
# ranks: 3
# Flat parameters are clipped by the norm of each rank's own part.
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

dist.init_process_group("gloo")
torch.manual_seed(0)
layers = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
model = FSDP(layers, auto_wrap_policy=ModuleWrapPolicy({nn.Linear}), device_id=torch.device("cpu"))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).square().mean().backward()
    gradients = [p.grad for p in model.parameters()]
    norm = torch.stack([g.norm() for g in gradients]).norm()
    # fix: norm = norm.square()
    # fix: dist.all_reduce(norm)
    # fix: norm = norm.sqrt()
    for g in gradients:
        g.mul_((0.01 / norm).clamp(max=1.0))
    optimizer.step()  # reported: 0; 1; 2
# fix: model = layers = None
