# ranks: 2
# The loss is divided by the number of ranks, so the sum of gradients is their mean.
import torch, torch.distributed as dist
dist.init_process_group("gloo")
n = dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.Linear(3, 3)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for _ in range(3):
    opt.zero_grad()
    loss = model(torch.randn(5, 3)).abs().mean() / n
    loss.backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
    opt.step()
