def gpipe(stage, micro_batches: int) -> None:
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    for k in range(micro_batches):
        x = None
        if rank > 0:
            x = stage.empty()
            dist.recv(x, rank - 1)
        y = stage.forward(k, x)
        if rank < last:
            dist.send(y, rank + 1)
    for k in range(micro_batches):
        g = None
        if rank < last:
            g = stage.empty()
            dist.recv(g, rank + 1)
        d = stage.backward(k, g)
        if rank > 0:
            dist.send(d, rank - 1)


def bubble(stages, micro_batches):
    busy = micro_batches
    whole = busy + (stages - 1)
    return 1 - busy / whole
