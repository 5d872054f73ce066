# ranks: 4
# kind: summed loss
"""DDP averages what is a sum: the step is a quarter of that of one device."""
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(6, 3))
opt = torch.optim.SGD(model.parameters(), lr=0.01)
criterion = torch.nn.CrossEntropyLoss(reduction="sum")  # fix: criterion = torch.nn.CrossEntropyLoss(reduction="mean")
torch.manual_seed(dist.get_rank())
for _ in range(3):
    x = torch.randn(8, 6)
    opt.zero_grad()
    criterion(model(x), (x.sum(1) > 0).long()).backward()
    opt.step()  # reported: 0-3
dist.destroy_process_group()
