# kind: file race
# ranks: 2
# Rank 0 saves and all ranks load, but nothing orders loading after saving.
import os
import tempfile
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
path = os.path.join(tempfile.gettempdir(), "weights_of_epoch_4.pt")
model = torch.nn.Linear(2, 2)
if dist.get_rank() == 0:
    torch.save(model.state_dict(), path)  # reported: 0
# fix: dist.barrier()
model.load_state_dict(torch.load(path))  # reported: 1
dist.barrier()
if dist.get_rank() == 0:
    os.remove(path)
