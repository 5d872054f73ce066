# Each section is a program: mistake_corpus.py adds its first lines, and explains the comments.

# === exercise_from_send, 4 ranks
# Exercises 1 and 2: collectives built only from send and recv.
def broadcast(tensor, src):
    if dist.get_rank() == src:
        for other in range(dist.get_world_size()):
            if other != src:
                dist.send(tensor, other)
    else:
        dist.recv(tensor, src)

def reduce(tensor, dst):
    if dist.get_rank() == dst:
        for other in range(dist.get_world_size()):
            if other != dst:
                buf = torch.empty_like(tensor)
                dist.recv(buf, other)
                tensor += buf
    else:
        dist.send(tensor, dst)

def all_reduce(tensor):
    reduce(tensor, 0)
    broadcast(tensor, 0)

t = torch.ones(2, 3) * dist.get_rank()
all_reduce(t)
assert (t == 6).all()
t = torch.tensor([dist.get_rank()])
broadcast(t, 3)
assert t.item() == 3

# === exercise_fsdp, 4 ranks
# Fully sharded data parallel by hand: each rank keeps a part of every weight, and gathers it where it is needed.
class Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx, shard, shape):
        gathered = shard.new_empty(shard.numel() * dist.get_world_size())
        dist.all_gather_into_tensor(gathered, shard)
        return gathered[: shape.numel()].view(shape)

    @staticmethod
    def backward(ctx, gradient):
        size = -(-gradient.numel() // dist.get_world_size())
        flat = nn.functional.pad(gradient.flatten(), (0, size * dist.get_world_size() - gradient.numel()))
        mine = flat.new_empty(size)
        dist.reduce_scatter_tensor(mine, flat)
        return mine / dist.get_world_size(), None

class FullyShardedLinear(nn.Module):
    def __init__(self, linear):
        super().__init__()
        n, rank = dist.get_world_size(), dist.get_rank()
        self.shapes = linear.weight.shape, linear.bias.shape
        self.shards = nn.ParameterList()
        for parameter in (linear.weight, linear.bias):
            size = -(-parameter.numel() // n)
            padded = nn.functional.pad(parameter.detach().flatten(), (0, size * n - parameter.numel()))
            self.shards.append(nn.Parameter(padded[rank * size : (rank + 1) * size].clone()))

    def forward(self, x):
        weight, bias = (Gathered.apply(shard, shape) for shard, shape in zip(self.shards, self.shapes))
        return nn.functional.linear(x, weight, bias)

alone = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3))
sharded = nn.Sequential(*(FullyShardedLinear(layer) if isinstance(layer, nn.Linear) else layer for layer in alone))
plain, many = (torch.optim.AdamW(net.parameters(), lr=0.01) for net in (alone, sharded))
for step in range(3):
    batch = torch.randn(8, 5, generator=torch.Generator().manual_seed(step))
    mine = batch.chunk(dist.get_world_size())[dist.get_rank()]
    for net, optimizer, x in ((alone, plain, batch), (sharded, many, mine)):
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
assert torch.allclose(sharded(batch), alone(batch), atol=1e-5)

# === exercise_sharded_optimizer, 2 ranks
# Each rank's Adam holds every second parameter, and broadcasts it after its step.
class Sharded(torch.optim.Optimizer):
    def __init__(self, params, cls, **kwargs):
        self.rank, self.n = dist.get_rank(), dist.get_world_size()
        super().__init__(params, kwargs)
        everything = [p for g in self.param_groups for p in g["params"]]
        self.owner = {p: i % self.n for i, p in enumerate(everything)}
        self.inner = cls([p for p in everything if self.owner[p] == self.rank], **kwargs)

    def step(self, closure=None):
        self.inner.step()
        for p, owner in self.owner.items():
            dist.broadcast(p.data, src=owner)

net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2))
opt = Sharded(net.parameters(), torch.optim.Adam, lr=0.01)
for step in range(3):
    opt.zero_grad()
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(dist.get_rank() * 10 + step))
    net(x).pow(2).mean().backward()
    for p in net.parameters():
        dist.all_reduce(p.grad)
        p.grad.div_(dist.get_world_size())
    opt.step()
