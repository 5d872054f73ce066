# === spawn_argparse, 0 ranks, args --world-size 3 --steps 2
import argparse
import os
import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def worker(rank, args):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = args.port
    dist.init_process_group("gloo", rank=rank, world_size=args.world_size)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(args.width, 1))
    opt = torch.optim.SGD(model.parameters(), lr=args.lr)
    for _ in range(args.steps):
        opt.zero_grad()
        model(torch.randn(4, args.width)).mean().backward()
        opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--world-size", type=int, default=2)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--width", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--port", default="29611")
    args = parser.parse_args()
    mp.spawn(worker, args=(args,), nprocs=args.world_size, join=True)
    print("all done")
