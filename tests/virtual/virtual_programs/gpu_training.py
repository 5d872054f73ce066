"""The CUDA calls of a typical script: data-parallel training with a loader, autocast, events and a checkpoint."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("nccl")
local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
device = torch.device("cuda", local)
torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 16), torch.randint(0, 4, (64,)))
sampler = DistributedSampler(data)
loader = DataLoader(data, 4, sampler=sampler, pin_memory=True)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4)).to(device)
model = DistributedDataParallel(model, device_ids=[local])
optimizer, criterion = torch.optim.AdamW(model.parameters(), lr=0.01), nn.CrossEntropyLoss().cuda(local)
scaler = torch.amp.GradScaler("cuda", enabled=True)
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
for epoch in range(3):
    sampler.set_epoch(epoch)
    start.record()
    for x, y in loader:
        x, y = x.cuda(local, non_blocking=True), y.to(device, non_blocking=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = criterion(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    end.record()
    torch.cuda.synchronize()
    total = torch.tensor([loss.item()], device=f"cuda:{local}")
    dist.all_reduce(total, op=dist.ReduceOp.AVG)
    print(epoch, f"{total.item():.6f}", start.elapsed_time(end) > 0)
if dist.get_rank() == 0:
    torch.save(model.module.state_dict(), sys.argv[1])
dist.barrier()
state = torch.load(sys.argv[1], map_location=f"cuda:{local}")
names = torch.cuda.get_device_name(), torch.cuda.device_count(), torch.cuda.current_device(), torch.cuda.is_available()
print(sorted(state), dist.get_backend(), *names)
dist.destroy_process_group()
