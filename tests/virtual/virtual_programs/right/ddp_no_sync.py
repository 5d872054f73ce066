# ranks: 2
# Accumulate gradients over three micro-batches; only the last one communicates.
import contextlib
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(6, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
torch.manual_seed(100 + dist.get_rank())
ACCUMULATE = 3
for i in range(9):
    last = (i + 1) % ACCUMULATE == 0
    with contextlib.nullcontext() if last else model.no_sync():
        loss = model(torch.randn(5, 6)).pow(2).mean() / ACCUMULATE
        loss.backward()
    if last:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
dist.destroy_process_group()
