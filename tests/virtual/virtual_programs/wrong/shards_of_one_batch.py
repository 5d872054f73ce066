# ranks: 2
# kind: same batch
"""FSDP with a loader that shuffles alike on all ranks."""
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(42)
loader = DataLoader(TensorDataset(torch.randn(32, 6)), batch_size=8, shuffle=True)  # fix: loader = DataLoader(data := TensorDataset(torch.randn(32, 6)), batch_size=8, sampler=torch.utils.data.DistributedSampler(data))
model = torch.nn.Linear(6, 6)
fully_shard(model)
opt = torch.optim.AdamW(model.parameters(), 1e-2)
for (x,) in loader:
    opt.zero_grad()
    (model(x) - x).square().mean().backward()  # reported: 0-1
    opt.step()
dist.destroy_process_group()
