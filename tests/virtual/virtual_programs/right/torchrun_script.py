# ranks: 4
# args: --epochs 2
import os, argparse, logging
import torch, torch.distributed as dist

logging.basicConfig(level=logging.INFO)
log = logging.getLogger(__name__)

def setup():
    dist.init_process_group(backend="nccl" if torch.cuda.is_available() else "gloo")
    return int(os.environ["LOCAL_RANK"]), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

def train(a):
    local, rank, world = setup()
    device = torch.device("cuda", local) if torch.cuda.is_available() else torch.device("cpu")
    model = torch.nn.Linear(2, 2).to(device)
    ddp = torch.nn.parallel.DistributedDataParallel(model, device_ids=[local] if device.type == "cuda" else None)
    opt = torch.optim.SGD(ddp.parameters(), lr=1e-2)
    for e in range(a.epochs):
        x = torch.randn(a.batch, 2, device=device)
        opt.zero_grad(); ddp(x).sum().backward(); opt.step()
        if rank == 0:
            log.info("epoch %d of %d on %d ranks", e, a.epochs, world)
    dist.destroy_process_group()

if __name__ == "__main__":
    p = argparse.ArgumentParser(); p.add_argument("--epochs", type=int, default=1); p.add_argument("--batch", type=int, default=8)
    train(p.parse_args())
