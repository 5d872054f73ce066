# Each section is a program: mistake_corpus.py adds its first lines, and explains the comments.

# === epoch_never_set, 2 ranks: set_epoch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

data = TensorDataset(torch.randn(16, 4))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
model = DDP(torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    # fix: loader.sampler.set_epoch(epoch)
    for (x,) in loader:  # reported: 0-1
        opt.zero_grad()
        model(x).square().mean().backward()
        opt.step()

# === no_sampler, 2 ranks: same batch
from torch.utils.data import DataLoader, TensorDataset

def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
    loader = DataLoader(data, batch_size=4, shuffle=True)  # fix: loader = DataLoader(data, batch_size=4, sampler=torch.utils.data.DistributedSampler(data))
    model = DDP(torch.nn.Linear(4, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        opt.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()  # reported: 0-1
        opt.step()

main()

# === same_slice, 3 ranks, --strict: same batch
# The slice does not know the rank.
x = torch.randn(48, 4)
B = 4
model = DDP(torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(4):
    batch = x[i * B : (i + 1) * B]  # fix: batch = x[(i * dist.get_world_size() + dist.get_rank()) * B :][:B]
    opt.zero_grad()
    model(batch).square().mean().backward()  # reported: 0-2
    opt.step()

# === sampler_local_rank, 4 ranks, --per-node 2: sampler
# LOCAL_RANK where the rank should be: two hosts train on the same half of the data.
import os
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

data = TensorDataset(torch.arange(32.0).view(16, 2))
local = int(os.environ["LOCAL_RANK"])
model = DDP(torch.nn.Linear(2, 1))
sampler = DistributedSampler(data, num_replicas=dist.get_world_size(), rank=local)  # reported: 0-3  # fix: sampler = DistributedSampler(data)
for (x,) in DataLoader(data, batch_size=2, sampler=sampler):
    model(x).mean().backward()

# === sampler_seeds, 2 ranks: sampler
# Every rank shuffles with its own seed, so parts overlap and some samples are never used.
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

data = TensorDataset(torch.arange(32.0).view(16, 2))
sampler = DistributedSampler(data, shuffle=True, seed=dist.get_rank())  # reported: 0; 1  # fix: sampler = DistributedSampler(data, shuffle=True, seed=0)
model = DDP(torch.nn.Linear(2, 1))
for epoch in range(2):
    sampler.set_epoch(epoch)
    for (x,) in DataLoader(data, batch_size=4, sampler=sampler):
        model(x).mean().backward()
        model.zero_grad()

# === tp_batches_differ, 4 ranks: input mismatch
# Every rank draws a batch of its own, also those that share one layer.
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
torch.manual_seed(dist.get_rank())  # fix: torch.manual_seed(mesh["dp"].get_local_rank())
x = torch.randn(4, 8)
model(x).square().mean().backward()  # reported: 0-1; 2-3
