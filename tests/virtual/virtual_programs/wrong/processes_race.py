# kind: file race
# ranks: 0
# Processes that the program itself starts write one log.
import os
import tempfile
import torch.distributed as dist
from torch.multiprocessing import Process


def main(rank, folder):
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="29713")
    dist.init_process_group("gloo", rank=rank, world_size=3)
    with open(os.path.join(folder, "result.txt"), "w") as file:  # reported: 0-2  # fix: with open(os.path.join(folder, f"result{rank}.txt"), "w") as file:
        file.write(f"rank {rank}")
    dist.barrier()


if __name__ == "__main__":
    folder = tempfile.mkdtemp()
    processes = [Process(target=main, args=(rank, folder)) for rank in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
