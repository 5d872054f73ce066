# ranks: 3
# Ranks take numbered tasks from a counter in the store until none is left.
import torch.distributed as dist
from torch.distributed import distributed_c10d

dist.init_process_group("gloo")
store = distributed_c10d._get_default_store()
TASKS, done = 7, []
while (task := store.add("next", 1) - 1) < TASKS:
    done.append(task)
everything = [None] * dist.get_world_size()
dist.all_gather_object(everything, done)
assert sorted(t for part in everything for t in part) == list(range(TASKS))
store.set(f"finished/{dist.get_rank()}", "yes")
store.wait([f"finished/{r}" for r in range(dist.get_world_size())])
dist.barrier()
