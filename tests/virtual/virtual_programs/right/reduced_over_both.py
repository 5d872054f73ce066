# ranks: 4
# DDP averages over the data ranks; a layer shared by the model ranks is also averaged over them.
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "model"))
data, model = mesh.get_group("data"), mesh.get_group("model")
torch.manual_seed(0)
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
