# ranks: 4
import os
import torch
import torch.distributed as dist
dist.init_process_group(init_method="env://", backend="gloo", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
rank, size = dist.get_rank(), dist.get_world_size()
left, right = (rank - 1 + size) % size, (rank + 1) % size

def allreduce(send, recv):
    # the simple one: every rank's whole tensor goes round
    send_buff, recv_buff, accum = send.clone(), send.clone(), send.clone()
    for i in range(size - 1):
        if i % 2 == 0:
            send_req = dist.isend(send_buff, right)
            dist.recv(recv_buff, left)
            accum += recv_buff
        else:
            send_req = dist.isend(recv_buff, right)
            dist.recv(send_buff, left)
            accum += send_buff
        send_req.wait()
    recv.copy_(accum)

mine, out = torch.rand(3, 3), torch.zeros(3, 3)
allreduce(mine, out)
check = mine.clone()
dist.all_reduce(check, op=dist.ReduceOp.SUM)
assert torch.allclose(out, check)
