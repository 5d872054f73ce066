# ranks: 2
import shutil
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
dist.broadcast_object_list(folder)
torch.manual_seed(0)
model = torch.nn.Linear(8, 8)
fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
dcp.save({"model": get_model_state_dict(model)}, checkpoint_id=folder[0])
state = {"model": get_model_state_dict(model)}
dcp.load(state, checkpoint_id=folder[0])
set_model_state_dict(model, state["model"])
dist.barrier()
if dist.get_rank() == 0:
    shutil.rmtree(folder[0])
dist.destroy_process_group()
