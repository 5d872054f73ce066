"""A training that hangs, because some ranks have more batches than others.

`ringlab virtual --ranks 4 examples/uneven_batches.py` reports the ranks that wait, their line, and the cause.
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

SAMPLES, BATCH = 50, 4


def main() -> None:
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    mine = torch.randn(SAMPLES, 8)[rank::world_size]
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in mine.split(BATCH):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
