# kind: exception
# ranks: 0
import os
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

def main(rank, size):
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="29555")
    dist.init_process_group("gloo", rank=rank, world_size=size)
    labels = {0: "cat", 1: "dog"}  # fix: labels = {0: "cat", 1: "dog", 2: "bird"}
    print(labels[rank])  # reported: 2
    dist.barrier()

if __name__ == "__main__":
    mp.spawn(main, args=(3,), nprocs=3)
