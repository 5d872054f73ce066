# reported: gpipe | GPipe runs all forwards first | out = stage.backward(
def gpipe(stage, micro_batches: int) -> None:
    rank, p = dist.get_rank(), dist.get_world_size()
    warmup, sent = min(p - 1 - rank, micro_batches), []

    def receive(peer):
        if not 0 <= peer < p:
            return None
        box = stage.empty()
        dist.recv(box, peer)
        return box

    for k in range(micro_batches + warmup):
        if k < micro_batches:
            out = stage.forward(k, receive(rank - 1))
            if rank < p - 1:
                sent.append((dist.isend(out, rank + 1), out))
        if k >= warmup:
            out = stage.backward(k - warmup, receive(rank + 1))
            if rank:
                sent.append((dist.isend(out, rank - 1), out))
    for work, _ in sent:
        work.wait()
