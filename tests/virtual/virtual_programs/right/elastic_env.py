# ranks: 4
import os
import torch
import torch.distributed as dist

for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
    assert os.environ[name], name
restart = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
snapshot = {"epoch": 2} if restart else {"epoch": 0}
dist.init_process_group("gloo")
t = torch.tensor([snapshot["epoch"]])
dist.all_reduce(t, op=dist.ReduceOp.MIN)  # all go on from what all have
for epoch in range(int(t), 3):
    dist.barrier()
if int(os.environ["LOCAL_RANK"]) == 0:
    print("a host has finished")
dist.destroy_process_group()
