# ranks: 2
# The loss is a sum over samples, gradients are summed over ranks, and the number of all samples divides both.
import torch, torch.distributed as dist
import torch.nn.functional as F
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = torch.nn.Linear(3, 2)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    x, y = torch.randn(4 + rank, 3), torch.zeros(4 + rank, dtype=torch.long)
    count = torch.tensor([float(len(x))])
    dist.all_reduce(count)
    opt.zero_grad()
    F.cross_entropy(model(x), y, reduction="sum").backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= count
    opt.step()
