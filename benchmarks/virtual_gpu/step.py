"""Training steps of a model as ``benchmarks/gpu_steps.py`` measures them: ``step.py MODEL BATCH bf16|float32 ...``.

Prints a line for each three arguments: the seconds of forward, backward and optimizer by the device's events.
"""

import contextlib
import sys
from itertools import pairwise

import torch
from torch.nn import functional

from realcomm.profiling.model_sources import find_model


def measure(name: str, batch_size: int, precision: str) -> None:
    """Print the seconds of the three parts of a second step."""
    source = find_model(name)
    model = source.build().train().cuda()
    batch = source.batch(batch_size, "cuda")
    target = batch if source.vocabulary else torch.zeros(batch_size, dtype=torch.long, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    for _ in range(2):
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(4)]
        marks[0].record()
        with torch.autocast("cuda", torch.bfloat16) if precision == "bf16" else contextlib.nullcontext():
            scores = model(batch)
            loss = functional.cross_entropy(scores.flatten(0, -2), target.flatten())
        marks[1].record()
        loss.backward()
        marks[2].record()
        optimizer.step()
        optimizer.zero_grad()
        marks[3].record()
        marks[3].synchronize()
    print(*(before.elapsed_time(after) / 1e3 for before, after in pairwise(marks)), flush=True)


for at in range(1, len(sys.argv), 3):
    measure(sys.argv[at], int(sys.argv[at + 1]), sys.argv[at + 2])
