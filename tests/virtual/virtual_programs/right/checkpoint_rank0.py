# ranks: 2
import os, tempfile
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
folder = [tempfile.mkdtemp()] if rank == 0 else [None]
dist.broadcast_object_list(folder)
path = os.path.join(folder[0], "model.pt")
model = DDP(torch.nn.Linear(4, 2))
opt = torch.optim.SGD(model.parameters(), 0.1)
for step in range(2):
    opt.zero_grad()
    model(torch.randn(2, 4)).sum().backward()
    opt.step()
if rank == 0:
    torch.save({"model": model.module.state_dict(), "opt": opt.state_dict()}, path)
dist.barrier()  # the file is there for all
state = torch.load(path, map_location="cpu")
model.module.load_state_dict(state["model"])
dist.barrier()
if rank == 0:
    os.remove(path)
    os.rmdir(folder[0])
dist.destroy_process_group()
