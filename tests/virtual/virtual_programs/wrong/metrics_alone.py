# kind: no communication
# ranks: 2
# The data is split between ranks and losses are averaged for the log, but the model is never wrapped.
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(0)
data = TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
model = torch.nn.Linear(4, 1)
for parameter in model.parameters():
    dist.broadcast(parameter.data, src=0)
sampler = DistributedSampler(data)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in DataLoader(data, batch_size=4, sampler=sampler):
        opt.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        # fix: for p in model.parameters(): dist.all_reduce(p.grad); p.grad /= dist.get_world_size()
        opt.step()  # reported: 0-1
        mean = loss.detach() / dist.get_world_size()
        dist.all_reduce(mean)
