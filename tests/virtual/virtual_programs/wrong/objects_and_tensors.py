# kind: collective mismatch
# ranks: 2
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 0:
    settings = [{"lr": 0.1}]
    dist.broadcast_object_list(settings, src=0)  # reported: 0
else:
    names = [None, None]  # fix: settings = [None]
    dist.all_gather_object(names, "worker")  # reported: 1  # fix: dist.broadcast_object_list(settings, src=0)
