# kind: file race
# ranks: 3
import os, tempfile
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
path = os.path.join(tempfile.gettempdir(), f"model_{os.environ['TORCHELASTIC_RUN_ID'] if 'TORCHELASTIC_RUN_ID' in os.environ else 0}.pt")
model = torch.nn.Linear(2, 2)
torch.save(model.state_dict(), path)  # reported: 0-2  # fix: if dist.get_rank() == 0: torch.save(model.state_dict(), path)
dist.barrier()
if dist.get_rank() == 0:
    os.remove(path)
