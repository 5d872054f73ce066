# Each section is a program: mistake_corpus.py adds its first lines, and explains the comments.

# === ddp_comm_hook, 2 ranks
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

def mean_in_float64(state, bucket):
    t = bucket.buffer().double() / dist.get_world_size()
    work = dist.all_reduce(t, async_op=True)
    return work.get_future().then(lambda f: f.value()[0].to(bucket.buffer().dtype))

for hook in (default_hooks.bf16_compress_hook, default_hooks.allreduce_hook, mean_in_float64):
    torch.manual_seed(3)
    m = DDP(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1)))
    m.register_comm_hook(None, hook)
    o = torch.optim.SGD(m.parameters(), 0.1)
    for _ in range(3):
        m(torch.randn(2, 4) + rank).mean().backward()
        o.step(); o.zero_grad()

# === ddp_cuda, 2 ranks, --gpu
import os, torch, torch.distributed as dist
import torch.nn.functional as F
local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
dist.init_process_group("nccl", device_id=torch.device(f"cuda:{local}"))
torch.cuda.manual_seed(local)
model = DDP(torch.nn.Linear(8, 4).cuda(), device_ids=[local])
opt = torch.optim.SGD(model.parameters(), lr=0.1)
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
start.record()
for _ in range(2):
    x, y = torch.randn(4, 8).cuda(), torch.randint(4, (4,), device="cuda")
    F.cross_entropy(model(x), y).backward()
    opt.step()
    opt.zero_grad()
end.record()
torch.cuda.synchronize()
if dist.get_rank() == 0:
    print(start.elapsed_time(end), "ms", torch.cuda.get_device_name())
dist.destroy_process_group()

# === ddp_hook_sums, 2 ranks
# Hooks of DDP that leave a sum: of losses that are divided, or that is divided by the samples of all ranks later.
def summed(group, bucket):
    handle = dist.all_reduce(bucket.buffer().bfloat16(), group=group, async_op=True)
    return handle.get_future().then(lambda done: bucket.buffer().copy_(done.value()[0]))

world_size, rank = dist.get_world_size(), dist.get_rank()
for form in ("loss", "gradients", "samples"):
    torch.manual_seed(0)
    model = DDP(torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)))
    model.register_comm_hook(None, summed)
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(rank)
    for _ in range(3):
        x = torch.randn(4, 8)
        opt.zero_grad()
        errors = (model(x)[:, 0] - x.sum(1)).square()
        loss = {"loss": errors.mean() / world_size, "gradients": errors.mean(), "samples": errors.sum()}[form]
        loss.backward()
        for parameter in model.parameters() if form != "loss" else ():
            parameter.grad /= world_size if form == "gradients" else world_size * len(x)
        opt.step()

# === ddp_join, 3 ranks
# Unequal numbers of batches, with Join.
from torch.distributed.algorithms.join import Join

model = DDP(torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.01)
batches = [torch.full((2, 4), float(rank + i)) for i in range(2 + rank)]
with Join([model]):
    for b in batches:
        opt.zero_grad()
        model(b).sum().backward()
        opt.step()
print(rank, "has had", len(batches), "batches")

# === ddp_no_sync, 2 ranks
# Accumulate gradients over three micro-batches; only the last one communicates.
import contextlib

model = DDP(torch.nn.Linear(6, 3))
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

# === ddp_scaled_with_target, 2 ranks
# load_state_dict(assign=True) before DDP, LoRA-like adapters before DDP, EMA by lerp, two models, no_sync
import copy
net = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 2))
net.load_state_dict(copy.deepcopy(net.state_dict()), assign=True)
net[0].requires_grad_(False)
model = DDP(net)
target = copy.deepcopy(net).requires_grad_(False)
opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
torch.manual_seed(dist.get_rank() + 5)
for step in range(6):
    x = torch.randn(4, 6)
    with torch.no_grad():
        rollout = model(x)
    with model.no_sync():
        scaler.scale((model(x) - target(x)).square().mean() / 2).backward()
    scaler.scale((model(torch.randn(4, 6)) - 1).square().mean() / 2).backward()
    scaler.unscale_(opt)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(opt)
    scaler.update()
    opt.zero_grad()
    with torch.no_grad():
        for a, b in zip(target.parameters(), net.parameters()):
            a.lerp_(b, 0.1)

# === ddp_static_graph, 2 ranks
from torch.utils.checkpoint import checkpoint

class Deep(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(3))
    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(lambda y, l=layer: torch.relu(l(y)), x, use_reentrant=False)
        return x

model = DDP(Deep(), static_graph=True)
opt = torch.optim.AdamW(model.parameters())
for _ in range(3):
    model(torch.rand(2, 8)).sum().backward()
    opt.step()
    opt.zero_grad()

# === ddp_unused, 2 ranks
# Each step uses one of the model's two heads.
class TwoHeads(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 4)
        self.heads = torch.nn.ModuleList([torch.nn.Linear(4, 1), torch.nn.Linear(4, 2)])

    def forward(self, x, head):
        return self.heads[head](torch.relu(self.body(x)))

model = DDP(TwoHeads(), find_unused_parameters=True)
opt = torch.optim.SGD(model.parameters(), 0.1)
for step in range(4):
    opt.zero_grad()
    x = torch.randn(3, 4) * (1 + dist.get_rank())
    model(x, step % 2).sum().backward()
    opt.step()

# === post_local_sgd, 4 ranks
# Gradients are averaged by all ranks at first, later by pairs alone, and the models now and then.
from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook as post
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer

torch.manual_seed(1)
model = DDP(torch.nn.Linear(8, 8))
pairs, _ = dist.new_subgroups(2)
model.register_comm_hook(post.PostLocalSGDState(None, pairs, start_localSGD_iter=2), post.post_localSGD_hook)
averager = PeriodicModelAverager(period=2, warmup_steps=2)
opt = PostLocalSGDOptimizer(torch.optim.SGD(model.parameters(), 0.1), averager)
torch.manual_seed(dist.get_rank())
for _ in range(6):
    opt.zero_grad()
    x = torch.randn(4, 8)
    (model(x) - x).square().mean().backward()
    opt.step()

# === sync_batch_norm, 2 ranks
# Batch norm over all ranks, written out with differentiable collectives.
import torch.distributed.nn.functional as F

class SyncNorm(nn.Module):
    def forward(self, x):
        mean, square = (F.all_reduce(torch.cat([x.mean(0), x.pow(2).mean(0)])) / dist.get_world_size()).chunk(2)
        return (x - mean) * (square - mean**2 + 1e-5).rsqrt()

model = DDP(nn.Sequential(nn.Linear(4, 6), SyncNorm(), nn.Linear(6, 1)))
opt = torch.optim.SGD(model.parameters(), 0.1)
torch.manual_seed(dist.get_rank())
for _ in range(3):
    opt.zero_grad()
    model(torch.randn(8, 4)).pow(2).mean().backward()
    opt.step()

# === sync_batch_norm_gpu, 4 ranks, --gpu
# torch's SyncBatchNorm, beside a batch norm of all ranks' data on one device.
dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)
torch.manual_seed(0)
alone = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU()).cuda()
spread = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU())).cuda()
spread.load_state_dict(alone.state_dict())
spread = DDP(spread, device_ids=[rank])
for step in range(2):
    x = torch.randn(2 * world, 3, 5, 5).cuda()
    alone(x).square().mean().backward()
    spread(x.chunk(world)[rank]).square().mean().backward()
spread.eval(), alone.eval()
assert torch.allclose(spread(x), alone(x), atol=1e-4)
for a, b in zip(spread.parameters(), alone.parameters()):
    assert torch.allclose(a.grad, b.grad, atol=1e-5), (a.grad, b.grad)
dist.destroy_process_group()

# === zero_optimizer, 2 ranks
from torch.distributed.optim import ZeroRedundancyOptimizer

model = DDP(torch.nn.Sequential(*[torch.nn.Linear(10, 10) for _ in range(4)]))
opt = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=0.01)
torch.manual_seed(dist.get_rank())
for _ in range(3):
    opt.zero_grad()
    model(torch.randn(4, 10)).pow(2).mean().backward()
    opt.step()
opt.consolidate_state_dict(to=0)
if dist.get_rank() == 0:
    print(len(opt.state_dict()["state"]), "states")
