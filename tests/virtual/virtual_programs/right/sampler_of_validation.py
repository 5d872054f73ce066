# ranks: 2
# set_epoch is never called on the validation sampler, which is harmless because nothing is trained on it.
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(1)
train, val = TensorDataset(torch.randn(16, 4)), TensorDataset(torch.randn(8, 4))
train_sampler, val_sampler = DistributedSampler(train, seed=3), DistributedSampler(val)
train_loader = DataLoader(train, batch_size=4, sampler=train_sampler)
val_loader = DataLoader(val, batch_size=4, sampler=val_sampler)
model = DDP(torch.nn.Linear(4, 4))
opt = torch.optim.SGD(model.parameters(), 0.1)
for epoch in range(3):
    train_sampler.set_epoch(epoch)
    model.train()
    for (x,) in train_loader:
        opt.zero_grad()
        (model(x) - x).abs().mean().backward()
        opt.step()
    model.eval()
    total = torch.zeros(1)
    with torch.no_grad():
        for (x,) in val_loader:
            total += (model(x) - x).abs().sum()
    dist.all_reduce(total)
dist.destroy_process_group()
