"""torchelastic launches a function twice and returns its results by rank."""

import os

import torch
import torch.distributed as dist
from torch.distributed.launcher.api import LaunchConfig, elastic_launch


def work(more):
    dist.init_process_group("gloo")
    x = torch.ones(1)
    dist.all_reduce(x)
    return x.item() + more, int(os.environ["LOCAL_RANK"])


if __name__ == "__main__":
    for processes in (2, 3):
        config = LaunchConfig(1, 1, processes, run_id="a", rdzv_backend="c10d", rdzv_endpoint="localhost:0")
        results = elastic_launch(config, work)(10)
        assert results == {rank: (processes + 10.0, rank) for rank in range(processes)}, results
    print("all right")
