# Each section is a program: mistake_corpus.py adds its first lines, and explains the comments.

# === attention_on_shards, 2 ranks, --gpu
# Attention on DTensors that are sharded by samples or by heads: the same as on one device.
from itertools import product

from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.nn.functional import scaled_dot_product_attention

mesh = init_device_mesh("cuda", (2,))
tensors = [torch.randn(2, 4, 8, 16, device="cuda", requires_grad=True) for _ in range(3)]
masks = [None, torch.ones(8, 8, dtype=torch.bool).tril()]
for dimension, mask in product((0, 1), masks):
    of_shards = None if mask is None else distribute_tensor(mask.cuda(), mesh, [Replicate()])
    whole_mask = None if mask is None else mask.cuda()
    shards = [distribute_tensor(tensor.detach(), mesh, [Shard(dimension)]).requires_grad_() for tensor in tensors]
    result = scaled_dot_product_attention(*shards, of_shards, is_causal=mask is None)
    alone = scaled_dot_product_attention(*tensors, whole_mask, is_causal=mask is None)
    result.square().sum().backward()
    gradients = torch.autograd.grad(alone.square().sum(), tensors)
    assert result.placements == (Shard(dimension),)
    assert torch.allclose(result.full_tensor(), alone, atol=1e-5)
    for shard, gradient in zip(shards, gradients, strict=True):
        assert torch.allclose(shard.grad.full_tensor(), gradient, atol=1e-5)

# === both_backends, 4 ranks, --gpu
# A group with a backend for each device is split, in an order of its own, and has tensors of the CPU and of GPUs.
import os

device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
dist.init_process_group("cpu:gloo,cuda:nccl", device_id=device)
torch.cuda.set_device(device)
rank = dist.get_rank()
pair = dist.split_group(split_ranks=[[2, 0], [3, 1]], group_desc="pairs")
assert dist.get_rank(pair) == (rank < 2) and pair.group_desc == "pairs"
x, y = torch.full((2,), float(rank), device=device), torch.full((2,), float(rank))
dist.all_reduce(x, group=pair)
dist.all_reduce(y, group=pair)
assert x.tolist() == y.tolist() == [2.0 * (rank % 2) + 2.0] * 2
seconds = dist.split_group(pair, [[1]])
assert (seconds is dist.GroupMember.NON_GROUP_MEMBER) == (rank > 1)
first = dist.new_group([0, 1])
if rank < 2:
    dist.barrier(group=first)

# === dcp, 2 ranks
import shutil
import tempfile

import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
dist.broadcast_object_list(folder)
model = torch.nn.Linear(8, 8)
fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
for save in (dcp.save, dcp.async_save):
    saving = save({"model": get_model_state_dict(model)}, checkpoint_id=f"{folder[0]}/{save.__name__}")
    model(torch.ones(2, 8)).sum().backward()
    if save is dcp.async_save:
        saving.result()
    state = {"model": get_model_state_dict(model)}
    dcp.load(state, checkpoint_id=f"{folder[0]}/{save.__name__}")
    set_model_state_dict(model, state["model"])
dist.barrier()
if dist.get_rank() == 0:
    shutil.rmtree(folder[0])

# === fsdp1, 2 ranks
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(d, 2 * d), nn.Linear(2 * d, d), nn.LayerNorm(d)

    def forward(self, x):
        return x + self.b(torch.relu(self.a(self.norm(x))))

model = FSDP(nn.Sequential(Block(8), Block(8), nn.Linear(8, 2)), auto_wrap_policy=ModuleWrapPolicy({Block}),
             sharding_strategy=ShardingStrategy.FULL_SHARD, device_id=torch.device("cpu"))
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
torch.manual_seed(dist.get_rank() + 1)
for step in range(3):
    loss = model(torch.randn(4, 8)).square().mean()
    loss.backward()
    model.clip_grad_norm_(1.0)
    opt.step()
    opt.zero_grad()
    dist.all_reduce(loss, op=dist.ReduceOp.SUM)
    if dist.get_rank() == 0:
        print(step, loss.item() / dist.get_world_size())

# === fsdp1_states, 2 ranks
# The full state of a sharded optimizer is gathered on rank 0 and sharded again.
from torch.distributed.fsdp import FullOptimStateDictConfig, FullStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def make():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    model = FSDP(model, device_id=torch.device("cpu"), use_orig_params=True)
    return model, torch.optim.AdamW(model.parameters(), lr=0.1)

model, opt = make()
torch.manual_seed(rank)
for _ in range(2):
    opt.zero_grad()
    model(torch.randn(4, 4)).square().mean().backward()
    opt.step()
on_rank0 = FullStateDictConfig(rank0_only=True), FullOptimStateDictConfig(rank0_only=True)
with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, *on_rank0):
    weights, states = [model.state_dict()], [FSDP.optim_state_dict(model, opt)]
for objects in (weights, states):
    dist.broadcast_object_list(objects, src=0)
other, other_opt = make()
with FSDP.state_dict_type(other, StateDictType.FULL_STATE_DICT):
    other.load_state_dict(weights[0])
    FSDP.optim_state_dict_to_load(other, other_opt, states[0])
for mine, loaded in zip(model.parameters(), other.parameters(), strict=True):
    assert torch.equal(mine, loaded)

# === fsdp2, 2 ranks
from torch.distributed.fsdp import fully_shard

torch.manual_seed(42)
layers = nn.Sequential(*(nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True) for _ in range(2)))
from torch.distributed.device_mesh import init_device_mesh
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
for layer in layers:
    fully_shard(layer, mesh=mesh)
fully_shard(layers, mesh=mesh)
optim = torch.optim.AdamW(layers.parameters(), lr=1e-3)
torch.manual_seed(dist.get_rank())
for _ in range(2):
    x = torch.randn(2, 5, 16)
    (layers(x) - x).abs().mean().backward()
    optim.step()
    optim.zero_grad()

# === functional, 4 ranks
import torch.distributed._functional_collectives as funcol

everyone = list(range(world))
x = torch.full((4,), float(rank))
total = funcol.all_reduce(x, "sum", everyone)
assert (total + 0 == 6).all()
rows = funcol.all_gather_tensor(x, 0, everyone)
assert rows.shape == (16,) and rows[-1] == 3
part = funcol.reduce_scatter_tensor(torch.arange(8.0), "avg" if False else "sum", 0, everyone)
assert torch.equal(part + 0, torch.tensor([2.0 * rank, 2.0 * rank + 1]) * 4)
swapped = funcol.all_to_all_single(torch.arange(4.0) + 10 * rank, None, None, everyone)
assert (swapped + 0)[1] == 10 + rank

# === hsdp, 4 ranks
# Hybrid sharding: sharded over two ranks, replicated over two pairs.
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
torch.manual_seed(1)
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
fully_shard(model[0], mesh=mesh)
fully_shard(model, mesh=mesh)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(10 + dist.get_rank())
for _ in range(2):
    model(torch.randn(3, 8)).pow(2).sum().backward()
    opt.step(), opt.zero_grad()

# === loss_parallel, 4 ranks
# A vocabulary that is spread over two ranks, whose loss is, too; the other dimension shards the rest.
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
model = nn.Sequential(nn.Embedding(16, 8), nn.LayerNorm(8), nn.Linear(8, 16))
plan = {
    "0": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
    "1": SequenceParallel(),
    "2": ColwiseParallel(input_layouts=Shard(1), use_local_output=False),
}
parallelize_module(model, mesh["tp"], plan)
fully_shard(model, mesh=mesh["dp"])
opt = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
torch.manual_seed(mesh["dp"].get_local_rank())
for _ in range(3):
    tokens = torch.randint(0, 16, (2, 6))
    with loss_parallel():
        F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
    opt.step()
    opt.zero_grad()

# === mesh, 4 ranks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
x = torch.tensor([float(dist.get_rank())])
dist.all_reduce(x, group=mesh.get_group("dp"))
assert x.item() in (2.0, 4.0)
dist.all_reduce(x, group=mesh["tp"].get_group())
assert x.item() == 6.0
matrix = torch.randn(8, 8)
d = distribute_tensor(matrix, mesh, [Shard(0), Shard(1)])
assert d.to_local().shape == (4, 4)
assert torch.equal(d.redistribute(mesh, [Replicate(), Replicate()]).to_local(), matrix)
assert torch.allclose((d @ d).full_tensor(), matrix @ matrix, atol=1e-5)

# === placed_tensors, 4 ranks, --gpu
# Tensors and modules go to the rank's GPU and back in many ways, know where they are, and are copies where they move.
import os

import numpy as np

dist.init_process_group("nccl")
number = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(number)
device = torch.device("cuda", number)
here = torch.ones(3)
on_gpu = here.cuda()
on_gpu.add_(1)
assert here.tolist() == [1, 1, 1] and here.device.type == "cpu" and on_gpu.device == device
back = on_gpu.cpu()
back.add_(1)
assert on_gpu.tolist() == [2, 2, 2] and on_gpu.is_cuda and not back.is_cuda
module = nn.Linear(3, 2)
assert next(module.parameters()).is_cpu
for move, is_there in ((lambda: module.to(device), True), (module.cpu, False), (module.cuda, True),
                       (lambda: module.to("cpu"), False), (lambda: module.to(number), True)):  # fmt: skip
    move()
    assert module.weight.is_cuda is is_there
x = torch.randn(4, 3).to(device)
module(x).sum().backward()
with torch.autocast("cuda", dtype=torch.bfloat16):
    out = module(x)
with torch.device("cuda"):
    within = torch.zeros(3)
torch.set_default_device("cuda")
as_default, layer = torch.arange(4), nn.Linear(2, 2)
torch.set_default_device(None)
assert torch.zeros(1).is_cpu and torch.from_numpy(np.ones(3)).is_cpu
generated = torch.rand(3, device="cuda", generator=torch.Generator(device="cuda").manual_seed(3))
loss = torch.tensor(1.0, device=x.device)
for tensor in (module.weight.grad, out.detach(), within, as_default, layer.weight.data, loss, torch.stack([loss, loss]),
            torch.zeros_like(x), x.new_zeros(2), torch.tensor(loss.item()).to(device), x @ x.T, generated,
            torch.from_numpy(np.ones(3)).to("cuda", non_blocking=True)):  # fmt: skip
    assert tensor.device == device
    dist.all_reduce(tensor)
leaf = torch.randn(3, requires_grad=True)
moved = leaf.cuda()
moved.sum().backward()
assert leaf.grad is not None and leaf.grad.is_cpu and not moved.is_leaf
gathered = [None] * dist.get_world_size()
dist.all_gather_object(gathered, x.shape)
dist.barrier()
with torch.cuda.device(0):
    assert torch.zeros(1, device="cuda").device.index == 0
assert torch.cuda.current_device() == number

# === tp_sp, 2 ranks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, PrepareModuleInput, parallelize_module

class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)

    def forward(self, x):
        return self.down(torch.relu(self.up(self.norm(x))))

mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
torch.manual_seed(5)
model = parallelize_module(MLP(), mesh, {
    "norm": SequenceParallel(),
    "up": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1)),
    "down": RowwiseParallel(output_layouts=Replicate()),
})
opt = torch.optim.SGD(model.parameters(), lr=0.05, foreach=False)
for step in range(3):
    torch.manual_seed(step)  # all ranks of a tensor-parallel group need the same batch
    out = model(torch.randn(2, 6, 8))
    out.square().mean().backward()
    opt.step()
    opt.zero_grad()
