# reported: shift | there is no rank -1 | dist.recv(received, rank - 1) ;; request = dist.isend(mine, rank + 1)
def shift(mine, received):
    rank = dist.get_rank()
    request = dist.isend(mine, rank + 1)
    dist.recv(received, rank - 1)
    request.wait()
