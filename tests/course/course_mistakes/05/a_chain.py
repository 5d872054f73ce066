# reported: tree_broadcast | takes .* in every round | dist.recv(tensor, rank - 1) ;; dist.send(tensor, rank + 1)
def tree_broadcast(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    if rank > 0:
        dist.recv(tensor, rank - 1)
    if rank < p - 1:
        dist.send(tensor, rank + 1)
