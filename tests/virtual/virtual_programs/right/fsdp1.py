# ranks: 2
import torch, torch.nn as nn
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(d, 2 * d), nn.Linear(2 * d, d), nn.LayerNorm(d)

    def forward(self, x):
        return x + self.b(torch.relu(self.a(self.norm(x))))


dist.init_process_group("gloo")
torch.manual_seed(0)
model = FSDP(nn.Sequential(Block(8), Block(8), nn.Linear(8, 2)), auto_wrap_policy=ModuleWrapPolicy({Block}),
             sharding_strategy=ShardingStrategy.FULL_SHARD, device_id=torch.device("cpu"))
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
torch.manual_seed(dist.get_rank() + 1)
for step in range(3):
    loss = model(torch.randn(4, 8)).square().mean()
    loss.backward()
    model.clip_grad_norm_(1.0)
    opt.step()
    opt.zero_grad()
    dist.all_reduce(loss, op=dist.ReduceOp.SUM)
    if dist.get_rank() == 0:
        print(step, loss.item() / dist.get_world_size())
dist.destroy_process_group()
