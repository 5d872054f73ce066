# kind: collective mismatch
# ranks: 2
# Each rank decides by its own loss when to stop.
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(0)
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
best, patience = 1e9, 0
for epoch in range(6):
    loss = net(torch.ones(1, 2) * (1 + dist.get_rank() * epoch)).square().mean()
    loss.backward()  # reported: 0
    # fix: stop = torch.zeros(1)
    if loss.item() >= best:
        patience += 1
        if patience > 0 and dist.get_rank() == 1 and epoch > 2:
            break  # fix: stop += 1
    # fix: dist.all_reduce(stop)
    # fix: if stop: break
    best = loss.item()
dist.barrier()  # reported: 1
