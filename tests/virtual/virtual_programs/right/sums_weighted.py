# ranks: 4
"""Sums that are divided by the samples of all ranks, and multiplied by what DDP divides by; and the loss of a VAE."""
import torch
import torch.distributed as dist
import torch.nn.functional as F

dist.init_process_group("gloo")
world = dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(6, 3))
opt = torch.optim.SGD(model.parameters(), lr=0.01)
torch.manual_seed(dist.get_rank())
for _ in range(3):
    x = torch.randn(4 + dist.get_rank(), 6)
    count = torch.tensor(float(len(x)))
    dist.all_reduce(count)
    opt.zero_grad()
    (F.cross_entropy(model(x), (x.sum(1) > 0).long(), reduction="sum") * world / count).backward()
    opt.step()
for _ in range(3):
    x, out = torch.randn(4, 6), None
    opt.zero_grad()
    out = model(x)
    (F.mse_loss(out, x[:, :3], reduction="sum") - 0.5 * (1 - out.square()).sum()).backward()
    opt.step()
dist.destroy_process_group()
