# ranks: 2
# options: --strict
# Losses over unequal numbers of tokens are divided by the number of tokens on all ranks.
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
    mine = (targets != -100).sum()
    count = mine.clone()
    dist.all_reduce(count)
    optimizer.zero_grad()
    loss = F.cross_entropy(F.dropout(model(tokens), 0.1), targets)
    (loss * (mine * world / count)).backward()
    optimizer.step()
