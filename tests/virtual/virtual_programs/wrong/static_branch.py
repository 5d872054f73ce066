# kind: unused parameters
# ranks: 2
# With static_graph=True, a branch is used only from the second iteration on.
import torch
import torch.distributed as dist
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.refine = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x, refines):
        x = self.body(x)
        return self.refine(x) if refines else x


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(Net(), static_graph=True)  # fix: model = nn.parallel.DistributedDataParallel(Net(), find_unused_parameters=True)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for step in range(4):
    opt.zero_grad()
    model(torch.randn(2, 4), step > 0).sum().backward()  # reported
    opt.step()
