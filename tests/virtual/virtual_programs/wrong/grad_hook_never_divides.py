# kind: sum not averaged
# ranks: 3
# A hook on each parameter sums its gradient over ranks during backward.
import torch
import torch.distributed as dist


def summed(gradient):
    gradient = gradient.clone()
    dist.all_reduce(gradient)  # reported: 0-2
    return gradient  # fix: return gradient / dist.get_world_size()


dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.ReLU(), torch.nn.Linear(6, 1))
for p in model.parameters():
    p.register_hook(summed)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
torch.manual_seed(dist.get_rank())
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 6)).square().mean().backward()
    optimizer.step()
