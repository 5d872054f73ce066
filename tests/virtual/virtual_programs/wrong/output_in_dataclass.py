# kind: exception
# ranks: 2
# DDP looks for unused parameters, but cannot look into the dataclass that forward returns.
import torch
import torch.distributed as dist
from torch import nn


class Output:
    def __init__(self, scores):
        self.scores = scores


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.auxiliary = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        return Output(self.body(x))  # fix: return (self.body(x),)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(Net(), find_unused_parameters=True)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for _ in range(3):
    opt.zero_grad()
    output = model(torch.randn(2, 4))
    scores = output.scores  # fix: scores = output[0]
    scores.sum().backward()  # reported
    opt.step()
