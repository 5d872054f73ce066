# kind: nccl order
# ranks: 2
# options: --as nccl
# A pair exchanges halos, each message by itself. On gloo it runs; NCCL does one after the other.
import torch
import torch.distributed as dist

dist.init_process_group()
peer = 1 - dist.get_rank()
mine, theirs = torch.ones(1 << 20), torch.empty(1 << 20)
sending = dist.isend(mine, peer)  # told: 0-1
receiving = dist.irecv(theirs, peer)
sending.wait()
receiving.wait()
