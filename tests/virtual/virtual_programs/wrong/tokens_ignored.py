# kind: unequal sample weights
# ranks: 2
# options: --strict
# Each rank averages over its own tokens without padding, and DDP averages these means.
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = DDP(torch.nn.Linear(8, 5))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + rank)
for _ in range(4):
    tokens, targets = torch.randn(12, 8), torch.randint(0, 5, (12,))
    targets[: 3 + 6 * rank] = -100
    optimizer.zero_grad()
    loss = F.cross_entropy(model(tokens), targets)  # fix: loss = F.cross_entropy(model(tokens), targets, reduction="sum")
    # fix: count = (targets != -100).sum()
    # fix: dist.all_reduce(count)
    # fix: loss = loss * world / count
    loss.backward()
    optimizer.step()  # reported: 0; 1
