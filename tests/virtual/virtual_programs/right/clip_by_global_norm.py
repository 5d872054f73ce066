# ranks: 2
# Every rank holds half of the layers; the norm of all gradients needs both halves.
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
shard = torch.nn.Linear(6, 6)
opt = torch.optim.SGD(shard.parameters(), lr=0.1)
for _ in range(2):
    opt.zero_grad()
    shard(torch.ones(2, 6)).pow(2).mean().backward()
    square = sum(p.grad.pow(2).sum() for p in shard.parameters())
    dist.all_reduce(square)
    scale = min(1.0, 1.0 / (square.sqrt().item() + 1e-6))
    for p in shard.parameters():
        p.grad.mul_(scale)
    opt.step()
