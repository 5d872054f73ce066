# kind: gradient scale mismatch
# ranks: 2
# torch's clip_grad_norm_ sees only each rank's shards.
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

dist.init_process_group("gloo")
torch.manual_seed(0)
model = FSDP(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)), device_id=torch.device("cpu"), use_orig_params=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).square().mean().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)  # fix: model.clip_grad_norm_(0.01)
    optimizer.step()  # reported: 0; 1
# fix: model = None
