# kind: missing ranks
# ranks: 0
import os
import torch.distributed as dist
import torch.multiprocessing as mp

def work(rank):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "29444"
    dist.init_process_group("gloo", rank=rank, world_size=4)
    dist.barrier()  # reported: 0-2

if __name__ == "__main__":
    mp.spawn(work, nprocs=3)  # fix: mp.spawn(work, nprocs=4)
