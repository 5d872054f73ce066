# kind: deadlock
# ranks: 4
# Both partners of each pair receive before they send.
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
partner = dist.get_rank() ^ 1
theirs = torch.empty(16)
dist.recv(theirs, src=partner)  # reported: 0-3  # fix: receiving = dist.irecv(theirs, src=partner)
dist.send(torch.ones(16), dst=partner)
# fix: receiving.wait()
