# ranks: 2
import os, tempfile
import torch, torch.distributed as dist
dist.init_process_group("gloo")
r = dist.get_rank()
name = [tempfile.mkdtemp()] if r == 0 else [None]
dist.broadcast_object_list(name, 0)
with open(os.path.join(name[0], f"log_{r}.txt"), "w") as log:
    print("hello from", r, file=log)
torch.save(torch.ones(1) * r, os.path.join(name[0], f"shard_{r}.pt"))
dist.barrier()
other = torch.load(os.path.join(name[0], f"shard_{1 - r}.pt"))
assert other.item() == 1 - r
dist.barrier()
for file in (f"log_{r}.txt", f"shard_{r}.pt"):
    os.remove(os.path.join(name[0], file))
dist.barrier()
if r == 0:
    os.rmdir(name[0])
