"""Run a program on real ranks, and print its error and a digest of each parameter: ``digested.py LOCAL_RANKS PROGRAM``.

``time.sleep`` advances the rank's clock and takes no time.
"""

import hashlib
import json
import os
import runpy
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

local_ranks, program = int(sys.argv[1]), sys.argv[2]
os.environ |= {"LOCAL_RANK": str(int(os.environ["RANK"]) % local_ranks), "LOCAL_WORLD_SIZE": str(local_ranks)}
torch.set_num_threads(1)
slept, read_clock = [0.0], time.time
time.sleep = slept.append
time.time = lambda: read_clock() + sum(slept)
sys.argv = [program]
error, parameters = "", {}
try:
    names = runpy.run_path(program, run_name="__main__")
    modules = {name: value for name, value in names.items() if isinstance(value, torch.nn.Module)}
    parameters = {
        f"{module}.{name}": hashlib.sha256(parameter.detach().numpy().tobytes()).hexdigest()
        for module, value in modules.items()
        for name, parameter in value.named_parameters()
        if not isinstance(parameter, DTensor)  # ranks have different shards
    }
    if dist.is_initialized():
        dist.barrier()  # rank 0 serves the store, which others may still need
except SystemExit as end:
    error = f"exit status {end.code}" if end.code else ""
print(json.dumps([error, parameters]), flush=True)
