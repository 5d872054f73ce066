# Each section is a program: mistake_corpus.py adds its first lines, and explains the comments.

# === closures, 2 ranks
# Optimizers that evaluate the loss themselves, once or many times in a step.
torch.manual_seed(dist.get_rank())
x, y = torch.randn(16, 4), torch.randn(16, 1)
for kind in (torch.optim.SGD, torch.optim.Adam, torch.optim.LBFGS):
    model = DDP(nn.Linear(4, 1))
    optimizer = kind(model.parameters(), lr=0.1)
    losses = []

    def closure():
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        losses.append(loss.item())
        return loss

    for step in range(4):
        _ = optimizer.step(closure) if step % 2 else optimizer.step(closure=closure)
    assert len(losses) >= 4

# === compiled, 2 ranks
# All ranks draw equal data, because their seeds are equal.
net = torch.compile(DDP(torch.nn.Linear(4, 2)), backend="eager")
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    net(torch.randn(3, 4)).square().mean().backward()
    optimizer.step()

# === loader_workers, 2 ranks
# The workers of a DataLoader are processes that send tensors to their rank from their own threads.
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

data = TensorDataset(torch.randn(16, 4), torch.randn(16, 1))
sampler = DistributedSampler(data)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in DataLoader(data, batch_size=4, sampler=sampler, num_workers=1, timeout=30):
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        optimizer.step()

# === local_sgd, 2 ranks
# Each rank trains alone; weights are averaged every second step.
net = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), 0.1)
torch.manual_seed(dist.get_rank())
for step in range(6):
    opt.zero_grad()
    net(torch.randn(4, 4)).square().mean().backward()
    opt.step()
    if step % 2:
        with torch.no_grad():
            for p in net.parameters():
                dist.all_reduce(p)
                p /= dist.get_world_size()

# === reduced_in_forward, 2 ranks
# Layers split by hand: a custom autograd function reduces its input in place and defines its gradient.
class Together(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient

generator = torch.Generator().manual_seed(0)
weight = torch.nn.Parameter(torch.randn(6, 4, generator=generator).chunk(world, dim=1)[rank].clone())
opt = torch.optim.SGD([weight], lr=0.1)
for _ in range(3):
    features = torch.randn(8, 4, generator=generator)
    opt.zero_grad()
    (Together.apply(features.chunk(world, dim=1)[rank] @ weight.T) - 1).square().mean().backward()
    opt.step()

# === sampler_of_validation, 2 ranks
# set_epoch is never called on the validation sampler, which is harmless because nothing is trained on it.
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

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

# === seeds_differ, 2 ranks
# Equal weights, then a different seed on each rank, so that dropout differs.
import random

torch.manual_seed(1234)
model = DDP(nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 1)))
torch.manual_seed(1234 + dist.get_rank())
random.seed(dist.get_rank())
opt = torch.optim.Adam(model.parameters())
for _ in range(3):
    opt.zero_grad()
    model(torch.randn(16, 8)).mean().backward()
    opt.step()

# === sum_of_losses, 2 ranks
# The loss is a sum over samples, gradients are summed over ranks, and the number of all samples divides both.
import torch.nn.functional as F
model = torch.nn.Linear(3, 2)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    x, y = torch.randn(4 + rank, 3), torch.zeros(4 + rank, dtype=torch.long)
    count = torch.tensor([float(len(x))])
    dist.all_reduce(count)
    opt.zero_grad()
    F.cross_entropy(model(x), y, reduction="sum").backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= count
    opt.step()

# === sums_weighted, 4 ranks
# Sums that are divided by the samples of all ranks, and multiplied by what DDP divides by; and the loss of a VAE.
import torch.nn.functional as F

model = DDP(torch.nn.Linear(6, 3))
opt = torch.optim.SGD(model.parameters(), lr=0.01)
torch.manual_seed(dist.get_rank())
for _ in range(3):
    x = torch.randn(4 + dist.get_rank(), 6)
    count = torch.tensor(float(len(x)))
    dist.all_reduce(count)
    opt.zero_grad()
    (F.cross_entropy(model(x), (x.sum(1) > 0).long(), reduction="sum") * world / count).backward()
    opt.step()
for _ in range(3):
    x, out = torch.randn(4, 6), None
    opt.zero_grad()
    out = model(x)
    (F.mse_loss(out, x[:, :3], reduction="sum") - 0.5 * (1 - out.square()).sum()).backward()
    opt.step()

# === tensor_biases, 4 ranks
# Two tensor ranks by two data ranks: each tensor rank has its own bias, which starts at zero on all ranks.
data = [dist.new_group([0, 2]), dist.new_group([1, 3])][rank % 2]
tensor = [dist.new_group([0, 1]), dist.new_group([2, 3])][rank // 2]
torch.manual_seed(rank % 2)
part = nn.Linear(4, 4)
nn.init.zeros_(part.bias)
torch.manual_seed(5)
shared = nn.Linear(4, 1)
opt = torch.optim.SGD([*part.parameters(), *shared.parameters()], lr=0.1)
torch.manual_seed(10 + rank // 2)
for _ in range(3):
    opt.zero_grad()
    x = torch.randn(3, 4)
    h = part(x)
    total = h.detach().clone()
    dist.all_reduce(total, group=tensor)
    (shared(h + (total - h.detach())) - 1).square().mean().backward()
    for p in part.parameters():
        dist.all_reduce(p.grad, group=data)
        p.grad /= 2
    for p in shared.parameters():
        dist.all_reduce(p.grad)
        p.grad /= 4
    opt.step()

# === validate_everywhere, 2 ranks
# All ranks evaluate the same small test set; only the training set is split, by slices.
from torch.utils.data import DataLoader, TensorDataset, Subset

data, test = TensorDataset(torch.randn(24, 4)), TensorDataset(torch.randn(6, 4))
mine = Subset(data, range(rank, len(data), world))
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
