# kind: late no_sync
# ranks: 3
# A helper for backward pauses the communication of all micro-batches but the last.
from contextlib import nullcontext
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def accumulate(model, loss, is_last):
    with nullcontext() if is_last else model.no_sync():
        (loss / 3).backward()  # reported: 0-2


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.ReLU(), torch.nn.Linear(6, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
torch.manual_seed(dist.get_rank())
for batch in range(2):
    for micro in range(3):
        # fix: with nullcontext() if micro == 2 else model.no_sync(): loss = model(torch.randn(4, 6)).square().mean()
        loss = model(torch.randn(4, 6)).square().mean()  # fix:
        accumulate(model, loss, micro == 2)
    optimizer.step()
    optimizer.zero_grad()
