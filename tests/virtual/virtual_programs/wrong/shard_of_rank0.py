# kind: early exit
# ranks: 2
# A sharded model's state is gathered on one rank only.
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = torch.nn.Linear(8, 8)
fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
if dist.get_rank() == 0:  # fix: if True:
    whole = {name: t.full_tensor() for name, t in model.state_dict().items()}  # reported: 0
