# ranks: 4
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
x = torch.tensor([float(dist.get_rank())])
dist.all_reduce(x, group=mesh.get_group("dp"))
assert x.item() in (2.0, 4.0)
dist.all_reduce(x, group=mesh["tp"].get_group())
assert x.item() == 6.0
torch.manual_seed(0)
matrix = torch.randn(8, 8)
d = distribute_tensor(matrix, mesh, [Shard(0), Shard(1)])
assert d.to_local().shape == (4, 4)
assert torch.equal(d.redistribute(mesh, [Replicate(), Replicate()]).to_local(), matrix)
assert torch.allclose((d @ d).full_tensor(), matrix @ matrix, atol=1e-5)
