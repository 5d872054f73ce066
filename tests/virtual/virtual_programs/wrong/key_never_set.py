# kind: store key
# ranks: 2
import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_store

dist.init_process_group("gloo")
store = _get_default_store()
if dist.get_rank() == 0:
    store.set("dataset_ready", "1")
else:
    store.wait(["data_set_ready"])  # reported: 1  # fix: store.wait(["dataset_ready"])
dist.barrier()  # reported: 0
