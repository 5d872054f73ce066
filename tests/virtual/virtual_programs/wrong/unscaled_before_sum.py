# kind: skipped step
# ranks: 2
# Gradients are unscaled before they are averaged, so only the rank with the overflow skips its step.
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)
torch.manual_seed(rank)
for step in range(4):
    optimizer.zero_grad()
    x = torch.randn(4, 4)
    if (rank, step) == (1, 2):
        x[0, 0] = float("inf")
    scaler.scale(model(x).square().mean()).backward()
    scaler.unscale_(optimizer)  # fix:
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()
    # fix: scaler.unscale_(optimizer)
    scaler.step(optimizer)  # reported: 0
    scaler.update()
