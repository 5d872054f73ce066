# ranks: 3
# kind: gradient scale mismatch
"""Each rank clips its shards by their own norm."""
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Linear(6, 6)
fully_shard(model)
opt = torch.optim.SGD(model.parameters(), 0.1)
torch.manual_seed(dist.get_rank())
for _ in range(2):
    x = torch.randn(4, 6)
    opt.zero_grad()
    (model(x) - x).square().sum().backward()
    shards = [parameter.grad.to_local() for parameter in model.parameters()]  # fix: torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    norm = torch.stack([shard.norm() for shard in shards]).norm()  # fix:
    for shard in shards:  # fix:
        shard.mul_(1.0 / norm.clamp(min=1.0))  # fix:
    opt.step()  # reported: 0; 1; 2
dist.destroy_process_group()
