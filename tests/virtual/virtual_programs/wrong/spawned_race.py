# kind: file race
# ranks: 0
# Rank 0 saves, all load, under mp.spawn.
import os
import tempfile
import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def main(rank):
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29712", rank=rank, world_size=2)
    model = torch.nn.Linear(4, 1)
    path = os.path.join(tempfile.gettempdir(), "weights_of_spawned.pt")
    if rank == 0:
        torch.save(model.state_dict(), path)  # reported: 0
    # fix: dist.barrier()
    model.load_state_dict(torch.load(path))  # reported: 1
    dist.barrier()
    if rank == 0:
        os.remove(path)


if __name__ == "__main__":
    mp.spawn(main, nprocs=2)
