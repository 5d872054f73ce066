# kind: nccl order
# ranks: 2
# options: --as nccl
# A pair exchanges halos, each message by itself. On gloo it runs; NCCL does one after the other.
import torch
import torch.distributed as dist

dist.init_process_group()
peer = 1 - dist.get_rank()
mine, theirs = torch.ones(1 << 20), torch.empty(1 << 20)
sending = dist.isend(mine, peer)  # reported: 0-1  # fix: works = dist.batch_isend_irecv([dist.P2POp(dist.isend, mine, peer), dist.P2POp(dist.irecv, theirs, peer)])
receiving = dist.irecv(theirs, peer)  # fix:
sending.wait()  # fix: for work in works: work.wait()
receiving.wait()  # fix:
