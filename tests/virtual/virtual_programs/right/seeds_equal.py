# ranks: 2
# Random data that is the same on all ranks because none sets a seed, as in the tutorial.
import torch
import torch.distributed as dist
import torch.optim as optim
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
model = DDP(torch.nn.Sequential(torch.nn.Linear(10, 10), torch.nn.ReLU(), torch.nn.Linear(10, 5)))
optimizer = optim.SGD(model.parameters(), lr=0.001)
optimizer.zero_grad()
outputs = model(torch.randn(20, 10))
labels = torch.randn(20, 5)
torch.nn.MSELoss()(outputs, labels).backward()
optimizer.step()
dist.destroy_process_group()
