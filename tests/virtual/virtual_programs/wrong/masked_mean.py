# kind: unequal sample weights
# ranks: 3
# options: --strict
# The mean over unmasked places, on ranks that average gradients by themselves.
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.Linear(6, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + rank)
for _ in range(4):
    x = torch.randn(10, 6)
    mask = (torch.arange(10) < 4 + 3 * rank).float()
    count = mask.sum()
    # fix: dist.all_reduce(count)
    optimizer.zero_grad()
    ((model(x).squeeze(1).square() * mask).sum() / count).backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world  # fix:
    optimizer.step()  # reported: 0; 1; 2
