# ranks: 3
# Rank 0 serves requests in order of arrival.
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank, n = dist.get_rank(), dist.get_world_size()
w = torch.zeros(4)
ROUNDS = 3
if rank == 0:
    for _ in range(ROUNDS * (n - 1)):
        grad = torch.empty(4)
        who = dist.recv(grad)
        w -= 0.1 * grad
        dist.send(w, who)
else:
    for i in range(ROUNDS):
        dist.send(torch.ones(4) * rank, 0)
        dist.recv(w, 0)
dist.barrier()
