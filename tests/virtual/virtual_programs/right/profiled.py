# ranks: 3
"""All ranks profile a few steps at once, and one by a schedule."""
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import profile, record_function, schedule

dist.init_process_group("gloo")
rank, model, ready = dist.get_rank(), nn.Linear(8, 8), []
with profile() as profiler:
    for _ in range(2):
        with record_function("work"):
            x = model(torch.ones(2, 8)).detach()
        dist.all_reduce(x)
with tempfile.NamedTemporaryFile(suffix=".json") as file:
    profiler.export_chrome_trace(file.name)
with profile(schedule=schedule(wait=1, warmup=1, active=2), on_trace_ready=ready.append) as profiler:
    for _ in range(5):
        model(torch.ones(2, 8))
        dist.barrier()
        profiler.step()
counts = {event.key: event.count for event in profiler.key_averages()}
assert len(ready) == 1 and counts.get("aten::linear", 2) == 2
