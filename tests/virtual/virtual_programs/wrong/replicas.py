# Each section is a program: mistake_corpus.py adds its first lines, and explains the comments.

# === average_loaded_by_rank0, 3 ranks: parameter mismatch
# The average of weights is loaded into the model, on rank 0 alone, and training goes on.
import copy

model = DDP(torch.nn.Linear(5, 5))
opt, average = torch.optim.SGD(model.parameters(), 0.1), copy.deepcopy(model.module)
torch.manual_seed(dist.get_rank())
for step in range(4):
    x = torch.randn(8, 5)
    opt.zero_grad()
    (model(x) - x).square().mean().backward()
    opt.step()  # reported: 0; 1-2
    with torch.no_grad():
        for mean, parameter in zip(average.parameters(), model.module.parameters()):
            mean.lerp_(parameter, 0.1)
    if step == 1 and dist.get_rank() == 0:  # fix: if step == 1:
        model.module.load_state_dict(average.state_dict())

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

# === ring_one_step_short, 4 ranks: parameter mismatch
# The second half of the ring from exercise 3 ends one step too early.
def all_reduce_(t):
    me, n = dist.get_rank(), dist.get_world_size()
    parts = t.view(n, -1)
    for phase, steps in (("reduce", n - 1), ("gather", n - 2)):  # fix: for phase, steps in (("reduce", n - 1), ("gather", n - 1)):
        for s in range(steps):
            out = (me - s + (phase == "gather")) % n
            inp = (out - 1) % n
            got = torch.empty_like(parts[inp])
            works = dist.batch_isend_irecv([dist.P2POp(dist.isend, parts[out].clone(), (me + 1) % n), dist.P2POp(dist.irecv, got, (me - 1) % n)])
            [w.wait() for w in works]
            parts[inp] = parts[inp] + got if phase == "reduce" else got

net = torch.nn.Sequential(torch.nn.Linear(4, 8, bias=False), torch.nn.Linear(8, 4, bias=False))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for _ in range(2):
    net(torch.randn(3, 4)).pow(2).mean().backward()
    for p in net.parameters():
        all_reduce_(p.grad)
        p.grad /= dist.get_world_size()
    opt.step()  # reported: 0-1, 3; 2
    opt.zero_grad()

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

# === shards_stepped_apart, 3 ranks: skipped step
# Each rank leaves out a step by what it sees in its own shard.
from torch.distributed.fsdp import fully_shard

model = torch.nn.Linear(6, 6)
fully_shard(model)
opt = torch.optim.SGD(model.parameters(), 0.1)
torch.manual_seed(dist.get_rank())
for step in range(4):
    x = torch.randn(4, 6)
    opt.zero_grad()
    (model(x) - x).square().mean().backward()
    # fix: skips = torch.tensor(float(dist.get_rank() == 1 and step % 2 == 0))
    # fix: dist.all_reduce(skips)
    if dist.get_rank() != 1 or step % 2:  # a large gradient, say  # fix: if not skips:
        opt.step()  # reported: 0, 2

# === step_of_rank0, 3 ranks: skipped step
# Only rank 0 steps.
model = DDP(torch.nn.Linear(3, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(3):
    opt.zero_grad()
    model(torch.ones(2, 3)).mean().backward()
    if dist.get_rank() == 0:  # fix: if True:
        opt.step()  # reported: 0

# === step_skipped, 2 ranks: skipped step
# A rank skips the step if its own loss is too large.
model = DDP(torch.nn.Linear(2, 1))
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

# === tp_layer_unsynchronised, 2 ranks: parameter mismatch
# Gradients are summed over the sequence-parallel pair, except the gradient of one norm.
net = nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6), nn.Linear(6, 6))
nn.init.uniform_(net[1].weight)
opt = torch.optim.Adam(net.parameters(), 1e-2)
x = torch.randn(2, 8, 6)
for _ in range(3):
    opt.zero_grad()
    net(x.chunk(world, 1)[rank]).pow(2).mean().backward()
    for m in (net[0], net[2]):  # fix: for m in net:
        for p in m.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
    opt.step()  # reported: 0; 1

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

# === unlike_when_asserted, 2 ranks: parameter mismatch
# Gradients are never averaged, and the program itself asserts that weights are equal.
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + dist.get_rank())
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    # fix: for p in model.parameters(): dist.all_reduce(p.grad); p.grad /= dist.get_world_size()
    optimizer.step()  # reported: 0; 1
everyone = [torch.empty(2, 4) for _ in range(dist.get_world_size())]
dist.all_gather(everyone, model.weight.data)
assert torch.equal(everyone[0], everyone[1]), "weights differ"

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

# === weight_replaced, 2 ranks: not in DDP
# A layer gets a new weight after DDP has wrapped the module.
net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
model = DDP(net)  # fix:
torch.manual_seed(3)
net[0].weight = nn.Parameter(torch.randn(4, 4))
# fix: model = DDP(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
torch.manual_seed(50 + dist.get_rank())
for _ in range(4):
    optimizer.zero_grad()
    model(torch.randn(6, 4)).mean().backward()  # reported
    optimizer.step()
