# ranks: 2
# All ranks evaluate the same small test set; only the training set is split, by slices.
import torch, torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset, Subset
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, n = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
data, test = TensorDataset(torch.randn(24, 4)), TensorDataset(torch.randn(6, 4))
mine = Subset(data, range(rank, len(data), n))
loader, test_loader = DataLoader(mine, batch_size=4, shuffle=True), DataLoader(test, batch_size=3)
model = DDP(torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for (x,) in loader:
        loss = model(x).square().mean()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
    model.eval()
    with torch.no_grad():
        print(epoch, sum(model(x).sum().item() for (x,) in test_loader))
    model.train()
dist.destroy_process_group()
