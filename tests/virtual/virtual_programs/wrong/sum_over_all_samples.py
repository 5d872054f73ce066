# ranks: 4
# kind: averaged twice
"""The sum is divided by the samples of all ranks, and DDP divides once more."""
import torch
import torch.distributed as dist
import torch.nn.functional as F

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(6, 3))
opt = torch.optim.SGD(model.parameters(), lr=0.01)
torch.manual_seed(dist.get_rank())
for _ in range(3):
    x = torch.randn(8, 6)
    opt.zero_grad()
    loss = F.cross_entropy(model(x), (x.sum(1) > 0).long(), reduction="sum")
    (loss / (len(x) * dist.get_world_size())).backward()  # fix: (loss / len(x)).backward()
    opt.step()  # reported: 0-3
dist.destroy_process_group()
