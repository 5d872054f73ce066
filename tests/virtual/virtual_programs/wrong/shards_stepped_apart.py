# ranks: 3
# kind: skipped step
"""Each rank leaves out a step by what it sees in its own shard."""
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Linear(6, 6)
fully_shard(model)
opt = torch.optim.SGD(model.parameters(), 0.1)
torch.manual_seed(dist.get_rank())
for step in range(4):
    x = torch.randn(4, 6)
    opt.zero_grad()
    (model(x) - x).square().mean().backward()
    # fix: skips = torch.tensor(float(dist.get_rank() == 1 and step % 2 == 0))
    # fix: dist.all_reduce(skips)
    if dist.get_rank() != 1 or step % 2:  # a large gradient, say  # fix: if not skips:
        opt.step()  # reported: 0, 2
dist.destroy_process_group()
