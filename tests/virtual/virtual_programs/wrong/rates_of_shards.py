# ranks: 2
# kind: optimizer state mismatch
"""A schedule by each rank's own loss, of shards of one model."""
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Linear(6, 6)
fully_shard(model)
opt = torch.optim.SGD(model.parameters(), 0.1)
schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=0)
torch.manual_seed(dist.get_rank())
for step in range(4):
    x = torch.randn(4, 6)
    opt.zero_grad()
    (model(x) - x).square().mean().backward()
    opt.step()  # reported: 0; 1
    # fix: loss = torch.tensor(1.0 - step * dist.get_rank())
    # fix: dist.all_reduce(loss)
    schedule.step(1.0 - step * dist.get_rank())  # fix: schedule.step(loss)
dist.destroy_process_group()
