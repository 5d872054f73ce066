# kind: skipped step
# ranks: 2
# A rank skips the step if its own loss is too large.
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(5):
    scale = 50.0 if (rank, step) == (1, 2) else 1.0
    loss = model(torch.ones(2, 2) * scale).abs().mean()
    loss.backward()
    # fix: skips = torch.tensor(float(loss.item() >= 20.0 or scale >= 2.0))
    # fix: dist.all_reduce(skips)
    if loss.item() < 20.0 and scale < 2.0:  # fix: if not skips:
        optimizer.step()  # reported: 0
    optimizer.zero_grad()
