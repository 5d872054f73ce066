# Each section is a program: mistake_corpus.py adds its first lines, and explains the comments.

# === bias_forgotten, 3 ranks: parameter mismatch
# Gradients of weights are averaged, but gradients of biases, which all start at zero, are not.
net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
for layer in (net[0], net[2]):
    nn.init.zeros_(layer.bias)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
torch.manual_seed(1 + dist.get_rank())
for _ in range(3):
    opt.zero_grad()
    (net(torch.randn(3, 4)) - 1).square().mean().backward()
    for layer in (net[0], net[2]):
        dist.all_reduce(layer.weight.grad)
        layer.weight.grad /= dist.get_world_size()
        # fix: dist.all_reduce(layer.bias.grad)
        # fix: layer.bias.grad /= dist.get_world_size()
    opt.step()  # reported: 0; 1; 2

# === head_replaced, 3 ranks: not in DDP
# The head is replaced after DDP wrapped the model. With find_unused_parameters, DDP does not complain.
model = DDP(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 100)), find_unused_parameters=True)
model.module[2] = nn.Linear(8, 3)
# fix: model = DDP(model.module)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for _ in range(4):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).square().mean().backward()  # reported: 0-2
    optimizer.step()

# === loaded_by_rank0, 3 ranks: parameter mismatch
# Rank 0 loads a checkpoint after DDP has made the models equal.
model = DDP(torch.nn.Linear(3, 1))
if dist.get_rank() == 0:
    model.module.load_state_dict({"weight": torch.ones(1, 3), "bias": torch.ones(1)})
# fix: for p in model.parameters(): dist.broadcast(p.data, 0)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    opt.zero_grad()
    model(torch.ones(2, 3)).mean().backward()
    opt.step()  # reported: 0; 1-2

# === module_bypassed, 2 ranks: parameter mismatch
# The loop calls the inner module, so DDP does not see the forward pass.
ddp = DDP(torch.nn.Linear(4, 2))
opt = torch.optim.SGD(ddp.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank() + 1)
for _ in range(4):
    opt.zero_grad()
    ddp.module(torch.randn(3, 4)).square().mean().backward()  # fix: ddp(torch.randn(3, 4)).square().mean().backward()
    opt.step()  # reported: 0; 1

# === momentum_of_rank0, 2 ranks: optimizer state mismatch
# Training resumes: rank 0 loads the optimizer state, and the other ranks start without one.
model = DDP(torch.nn.Linear(3, 2))
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
saved = {"state": {0: {"momentum_buffer": torch.ones(2, 3)}, 1: {"momentum_buffer": torch.ones(2)}}, "param_groups": opt.state_dict()["param_groups"]}
if dist.get_rank() == 0:  # fix: if True:
    opt.load_state_dict(saved)
for _ in range(2):
    opt.zero_grad()
    model(torch.ones(2, 3)).mean().backward()
    opt.step()  # reported: 0; 1

# === no_sync_for_ever, 2 ranks: parameter mismatch
# fix: from contextlib import nullcontext
model = DDP(torch.nn.Linear(4, 2))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for i in range(4):
    with model.no_sync():   # accumulates, and the last one should not be in here  # fix: with model.no_sync() if i % 2 == 0 else nullcontext():
        model(torch.randn(3, 4)).square().mean().backward()
    if i % 2 == 1:
        opt.step()  # reported: 0; 1
        opt.zero_grad()

# === plateau_of_each, 2 ranks: optimizer state mismatch
# The learning rate depends on each rank's own validation loss.
model = DDP(torch.nn.Linear(3, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=0)
for epoch in range(4):
    opt.zero_grad()
    model(torch.randn(4, 3)).square().mean().backward()
    opt.step()  # reported: 0; 1
    validation = 1.0 / (epoch + 1) if rank == 0 else 1.0
    # fix: total = torch.tensor(validation)
    # fix: dist.all_reduce(total)
    plateau.step(validation)  # fix: plateau.step(total)

# === scales_differ, 2 ranks: optimizer state mismatch
# The gradient scalers of the ranks start with different scales.
model = DDP(nn.Linear(10, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** (8 + rank))  # fix: scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)
torch.manual_seed(rank)
for _ in range(5):
    optimizer.zero_grad()
    scaler.scale(model(torch.randn(4, 10)).square().mean()).backward()
    scaler.step(optimizer)  # reported: 0; 1
    scaler.update()

# === step_of_rank0, 3 ranks: skipped step
# Only rank 0 steps.
model = DDP(torch.nn.Linear(3, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(3):
    opt.zero_grad()
    model(torch.ones(2, 3)).mean().backward()
    if dist.get_rank() == 0:  # fix: if True:
        opt.step()  # reported: 0

# === unfrozen_later, 2 ranks: not in DDP
# The body is frozen when DDP wraps the model, and trained from the second epoch on.
net = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 2))
net[0].requires_grad_(False)
model = DDP(net)
torch.manual_seed(dist.get_rank())
for epoch in range(2):
    if epoch == 1:
        net[0].requires_grad_(True)
        # fix: model = DDP(net)
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(4, 6)).square().mean().backward()  # reported: 0-1
        optimizer.step()

# === unlike_at_first, 4 ranks: parameter mismatch
# Each rank initializes its own weights, and only gradients are averaged.
torch.manual_seed(dist.get_rank())
model = torch.nn.Linear(5, 2)
# fix: for p in model.parameters(): dist.broadcast(p.data, 0)
opt = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(3):
    opt.zero_grad()
    model(torch.randn(4, 5)).square().mean().backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()
    opt.step()  # reported: 0; 1; 2; 3

# === unlike_before_first_step, 3 ranks: parameter mismatch
# Models start with different weights, and an exception occurs before the first step.
torch.manual_seed(dist.get_rank())
model = torch.nn.Linear(4, 2)
# fix: for p in model.parameters(): dist.broadcast(p.data, src=0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + dist.get_rank())
for _ in range(2):
    optimizer.zero_grad()
    loss = model(torch.ones(8, 4)).square().mean()
    loss.backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()
    losses = [torch.zeros(()) for _ in range(3)]
    dist.all_gather(losses, loss.detach())
    if max(losses) - min(losses) > 1e-6:
        raise RuntimeError("losses of equal models and equal data differ")
    optimizer.step()

# === unscaled_before_sum, 2 ranks: skipped step
# Gradients are unscaled before they are averaged, so only the rank with the overflow skips its step.
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
