# kind: timeout
# ranks: 3
import datetime
import time
import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=5))  # fix: dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=30))
if dist.get_rank() == 0:
    time.sleep(1200)  # unpacks the data set
dist.barrier()  # reported: 0
print("go")
