# kind: no communication
# ranks: 2
# A group is created but never used: each rank trains alone.
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = torch.nn.Linear(4, 1)  # fix: model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    opt.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    opt.step()  # reported: 0-1
print("trained on", dist.get_world_size(), "ranks")
dist.destroy_process_group()
