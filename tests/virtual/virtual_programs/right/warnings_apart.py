# ranks: 2
"""A rank turns its warnings into errors, or records them; the other's are what they were."""
import time
import warnings

import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
if rank == 0:
    warnings.filterwarnings("error")
dist.barrier()
try:
    warnings.warn("of this rank", stacklevel=1)
    assert rank == 1
except UserWarning:
    assert rank == 0
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    dist.barrier()
    for _ in range(rank + 1):
        warnings.warn("recorded", stacklevel=1)
    dist.barrier()
assert len(caught) == rank + 1
for seconds in (0.25, 0.01, 1e-4):
    begin = time.time()
    time.sleep(seconds)
    assert time.time() - begin >= seconds
