# ranks: 2
import shutil
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
dist.broadcast_object_list(folder)
model = torch.nn.Linear(8, 8)
fully_shard(model)
saving = dcp.async_save({"model": model.state_dict()}, checkpoint_id=folder[0])
model(torch.ones(2, 8)).sum().backward()
saving.result()
dist.barrier()
if dist.get_rank() == 0:
    shutil.rmtree(folder[0])
dist.destroy_process_group()
