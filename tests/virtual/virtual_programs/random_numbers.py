"""Ranks draw three kinds of random numbers in turn, each rank from its own seed."""

import random
from random import shuffle

import numpy as np
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
random.seed(rank), np.random.seed(rank), torch.manual_seed(rank)
alone = random.Random(rank), np.random.RandomState(rank), torch.Generator().manual_seed(rank)
for _ in range(3):
    drawn = random.random(), np.random.rand(), torch.rand(1).item()
    assert drawn == (alone[0].random(), alone[1].rand(), torch.rand(1, generator=alone[2]).item())
    dist.barrier()
state, cards, again = random.getstate(), list(range(9)), list(range(9))
shuffle(cards)
dist.barrier()
random.setstate(state)
shuffle(again)
assert cards == again
print("own")
