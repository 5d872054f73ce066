# Each section is a program: mistake_corpus.py adds its first lines, and explains the comments.

# === doubling_of_six, 6 ranks
# Recursive doubling on six ranks: two ranks first give their data away, and get the sum at the end.
def all_reduce(t):
    rank, world = dist.get_rank(), dist.get_world_size()
    power = 1 << (world.bit_length() - 1)
    got = torch.empty_like(t)
    if rank >= power:
        dist.send(t, rank - power)
        dist.recv(got, rank - power)
        return got
    if rank + power < world:
        dist.recv(got, rank + power)
        t = t + got
    distance = 1
    while distance < power:
        sending = dist.isend(t, rank ^ distance)
        dist.recv(got, rank ^ distance)
        sending.wait()
        t = t + got
        distance *= 2
    if rank + power < world:
        dist.send(t, rank + power)
    return t

for values in (torch.full((4,), float(dist.get_rank())), torch.randn(5)):
    print((all_reduce(values) / dist.get_world_size()).sum().item())

# === gossip_and_sums, 4 ranks
# Gossip, an exchange between all pairs, a sum of pairs next to a complete sum, and a server of sums.
torch.manual_seed(rank)

def exchange(mine, peer):
    got = torch.empty_like(mine)
    sending = dist.isend(mine, peer)
    dist.recv(got, peer)
    sending.wait()
    return got

x = torch.randn(6)
for step in range(4):
    x = (x + exchange(x, rank ^ 1 if step % 2 == 0 else world - 1 - rank)) / 2
total = torch.ones(3) * rank
for distance in range(1, world):
    total = total + exchange(torch.ones(3) * rank, rank ^ distance)
z = torch.randn(4)
print(torch.cat([total, z + exchange(z, rank ^ 1)]).sum() / world)
gradients, sums = torch.randn(5), torch.zeros(5)
for step in range(3):
    if rank == 0:
        for other in range(1, world):
            got = torch.empty(5)
            dist.recv(got, other)
            sums += got
        for other in range(1, world):
            dist.send(sums, other)
    else:
        dist.send(gradients * (step + 1), 0)
        dist.recv(torch.empty(5), 0)

# === hooks_divide_before, 2 ranks
# Separate models: parameter hooks divide before or after the sum, and buckets divide the sum.
def after(gradient):
    gradient = gradient.clone()
    dist.all_reduce(gradient)
    return gradient / dist.get_world_size()

def before(gradient):
    gradient = gradient / dist.get_world_size()
    dist.all_reduce(gradient)
    return gradient

def averaged(parameter):
    dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM)
    parameter.grad /= dist.get_world_size()

for hook in (after, before, averaged, None):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2), nn.Linear(2, 1))
    for p in model.parameters() if hook is not None else ():
        register = p.register_post_accumulate_grad_hook if hook is averaged else p.register_hook
        register(hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(dist.get_rank())
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        parameters = list(model.parameters()) if hook is None else []
        for bucket in (parameters[:3], parameters[3:]):
            if bucket:
                flat = torch.cat([p.grad.flatten() for p in bucket]) / world
                dist.all_reduce(flat)
                for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
                    p.grad.copy_(part.view_as(p))
        optimizer.step()

# === moe_all_to_all, 4 ranks
# An expert a rank: tokens go where a router sends them, and come back in their order.
torch.manual_seed(rank)
tokens = torch.randn(10, 4)
expert = torch.randint(0, world, (10,))
order = expert.argsort(stable=True)
sent = torch.bincount(expert, minlength=world)
received = torch.empty_like(sent)
dist.all_to_all_single(received, sent)
arrived = torch.empty(int(received.sum()), 4)
dist.all_to_all_single(arrived, tokens[order], received.tolist(), sent.tolist())
done = arrived * (rank + 1)
back = torch.empty_like(tokens)
dist.all_to_all_single(back, done, sent.tolist(), received.tolist())
out = torch.empty_like(tokens)
out[order] = back
assert torch.allclose(out, tokens * (expert + 1).unsqueeze(1))

# === reduced_over_both, 4 ranks
# DDP averages over the data ranks; a layer shared by the model ranks is also averaged over them.
from torch.distributed.device_mesh import init_device_mesh

mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "model"))
data, model = mesh.get_group("data"), mesh.get_group("model")
norm = DDP(torch.nn.LayerNorm(4), process_group=data)
opt = torch.optim.SGD(norm.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank(data))
for _ in range(3):
    opt.zero_grad()
    (norm(torch.randn(8, 4)) - 1).square().mean().backward()
    for parameter in norm.parameters():
        dist.all_reduce(parameter.grad, group=model)
        parameter.grad /= 2
    opt.step()

# === ring_shown_half_way, 4 ranks
# Each rank prints its chunks between the two halves of a ring, and the sum is divided before the second half.
torch.manual_seed(rank)
t = torch.randn(world, 3)
for step in range(world - 1):
    got = torch.empty(3)
    sending = dist.isend(t[(rank - step) % world].clone(), (rank + 1) % world)
    dist.recv(got, (rank - 1) % world)
    sending.wait()
    t[(rank - step - 1) % world] += got
print("half way", torch.cat(list(t)).tolist(), t.sum().item())
t /= world
for step in range(world - 1):
    got = torch.empty(3)
    sending = dist.isend(t[(rank + 1 - step) % world].clone(), (rank + 1) % world)
    dist.recv(got, (rank - 1) % world)
    sending.wait()
    t[(rank - step) % world] = got
print(t.mean().item())
