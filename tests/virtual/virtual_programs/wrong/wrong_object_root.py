# kind: root
# ranks: 3
import torch.distributed as dist
dist.init_process_group("gloo")
paths = ["/data/run1"] if dist.get_rank() == 0 else [None]
dist.broadcast_object_list(paths, src=0 if dist.get_rank() == 0 else 1)  # reported: 0; 1-2  # fix: dist.broadcast_object_list(paths, src=0)
