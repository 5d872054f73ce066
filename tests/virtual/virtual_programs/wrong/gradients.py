# Each section is a program: mistake_corpus.py adds its first lines, and explains the comments.

# === beside_ddp, 2 ranks: reduced twice
# A loop with hand-written gradient averaging, around a model that is now wrapped in DDP.
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
model = DDP(net)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for _ in range(2):
    opt.zero_grad()
    model(torch.randn(4, 4)).mean().backward()
    for p in net.parameters():  # fix:
        dist.all_reduce(p.grad)  # reported: 0-1  # fix:
        p.grad /= dist.get_world_size()  # fix:
    opt.step()

# === clipped_by_own_norm, 3 ranks: gradient scale mismatch
# Each rank clips its shards by their own norm.
from torch.distributed.fsdp import fully_shard

model = torch.nn.Linear(6, 6)
fully_shard(model)
opt = torch.optim.SGD(model.parameters(), 0.1)
torch.manual_seed(dist.get_rank())
for _ in range(2):
    x = torch.randn(4, 6)
    opt.zero_grad()
    (model(x) - x).square().sum().backward()
    shards = [parameter.grad.to_local() for parameter in model.parameters()]  # fix: torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    norm = torch.stack([shard.norm() for shard in shards]).norm()  # fix:
    for shard in shards:  # fix:
        shard.mul_(1.0 / norm.clamp(min=1.0))  # fix:
    opt.step()  # reported: 0; 1; 2

# === divided_twice, 2 ranks: averaged twice
# DDP has already averaged the gradients.
model = DDP(torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for _ in range(3):
    opt.zero_grad()
    model(torch.randn(4, 4)).square().mean().backward()
    for p in model.parameters():  # fix:
        p.grad /= dist.get_world_size()  # fix:
    opt.step()  # reported: 0-1

# === fsdp1_clipped_by_torch, 2 ranks: gradient scale mismatch
# torch's clip_grad_norm_ sees only each rank's shards.
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

model = FSDP(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)), device_id=torch.device("cpu"), use_orig_params=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).square().mean().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)  # fix: model.clip_grad_norm_(0.01)
    optimizer.step()  # reported: 0; 1
# fix: model = None

# === head_in_no_optimizer, 2 ranks: not in optimizer
# The head is replaced after the optimizer was created.
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)  # fix:
net[4] = nn.Linear(8, 3)
# fix: opt = torch.optim.SGD(net.parameters(), lr=0.1)
model = DDP(net)
torch.manual_seed(1 + dist.get_rank())
for _ in range(3):
    opt.zero_grad()
    nn.functional.cross_entropy(model(torch.randn(6, 4)), torch.randint(0, 3, (6,))).backward()
    opt.step()  # reported: 0-1

# === hook_never_divides, 3 ranks: sum not averaged
# A hook of DDP that sends halves, and leaves their sum as it is.
def halved(group, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    handle = dist.all_reduce(bucket.buffer().half(), group=group, async_op=True)
    return handle.get_future().then(lambda done: bucket.buffer().copy_(done.value()[0]))  # fix: return handle.get_future().then(lambda done: bucket.buffer().copy_(done.value()[0] / dist.get_world_size()))

model = DDP(torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)))
model.register_comm_hook(None, halved)  # reported: 0-2
opt = torch.optim.SGD(model.parameters(), lr=0.01)
torch.manual_seed(dist.get_rank())
for _ in range(3):
    x = torch.randn(4, 8)
    opt.zero_grad()
    torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
    opt.step()

# === loss_reduced_first, 2 ranks: reduced loss
# all_reduce is not differentiable, so each rank's gradients are its own.
model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for _ in range(2):
    opt.zero_grad()
    loss = model(torch.randn(4, 4)).square().mean()
    dist.all_reduce(loss)  # fix:
    loss = loss / dist.get_world_size()  # fix:
    loss.backward()  # reported: 0-1
    # fix: for p in model.parameters(): dist.all_reduce(p.grad); p.grad /= dist.get_world_size()
    opt.step()

# === never_communicates, 2 ranks: no communication
# A group is created but never used: each rank trains alone.
torch.manual_seed(dist.get_rank())
model = torch.nn.Linear(4, 1)  # fix: model = DDP(torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    opt.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    opt.step()  # reported: 0-1
print("trained on", dist.get_world_size(), "ranks")

# === optimizer_before_sharding, 2 ranks: no gradients
# The optimizer holds the parameters that fully_shard has replaced.
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

model = torch.nn.Linear(4, 4)
opt = torch.optim.SGD(model.parameters(), lr=0.1)  # fix:
fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
# fix: opt = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.ones(2, 4)).sum().backward()
    opt.step()  # reported: 0-1
    opt.zero_grad()

# === sum_never_divided, 4 ranks: sum not averaged
# Data parallelism by hand, without the division.
import torch.nn.functional as F

def average_gradients(model):
    for p in model.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)  # reported: 0-3
        # fix: p.grad /= dist.get_world_size()

model = torch.nn.Linear(4, 3)
opt = torch.optim.SGD(model.parameters(), lr=0.01)
torch.manual_seed(dist.get_rank())
for step in range(3):
    opt.zero_grad()
    x, y = torch.randn(8, 4), torch.randint(3, (8,))
    F.cross_entropy(model(x), y).backward()
    average_gradients(model)
    opt.step()

# === sum_over_all_samples, 4 ranks: averaged twice
# The sum is divided by the samples of all ranks, and DDP divides once more.
import torch.nn.functional as F

model = DDP(torch.nn.Linear(6, 3))
opt = torch.optim.SGD(model.parameters(), lr=0.01)
torch.manual_seed(dist.get_rank())
for _ in range(3):
    x = torch.randn(8, 6)
    opt.zero_grad()
    loss = F.cross_entropy(model(x), (x.sum(1) > 0).long(), reduction="sum")
    (loss / (len(x) * dist.get_world_size())).backward()  # fix: (loss / len(x)).backward()
    opt.step()  # reported: 0-3

# === summed_loss, 4 ranks: summed loss
# DDP averages what is a sum: the step is a quarter of that of one device.
model = DDP(torch.nn.Linear(6, 3))
opt = torch.optim.SGD(model.parameters(), lr=0.01)
criterion = torch.nn.CrossEntropyLoss(reduction="sum")  # fix: criterion = torch.nn.CrossEntropyLoss(reduction="mean")
torch.manual_seed(dist.get_rank())
for _ in range(3):
    x = torch.randn(8, 6)
    opt.zero_grad()
    criterion(model(x), (x.sum(1) > 0).long()).backward()
    opt.step()  # reported: 0-3
