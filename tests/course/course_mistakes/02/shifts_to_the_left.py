# reported: shift | rank 0 sends to rank 2, not to 1 | dist.recv(received, (rank + 1) % world_size) ;; request = dist.isend(mine, (rank - 1) % world_size)
def shift(mine, received):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    request = dist.isend(mine, (rank - 1) % world_size)
    dist.recv(received, (rank + 1) % world_size)
    request.wait()
