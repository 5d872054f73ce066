# kind: unused parameters
# ranks: 2
import torch
import torch.distributed as dist
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.auxiliary = nn.Linear(4, 2)

    def forward(self, x):
        return self.body(x)


dist.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(Net())  # fix: model = nn.parallel.DistributedDataParallel(Net(), find_unused_parameters=True)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    opt.zero_grad()
    model(torch.ones(2, 4)).sum().backward()  # reported
    opt.step()
