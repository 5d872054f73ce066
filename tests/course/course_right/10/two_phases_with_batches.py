def one_f_one_b(stage, micro_batches: int) -> None:
    rank, p = dist.get_rank(), dist.get_world_size()
    up, down = rank - 1, rank + 1
    open_sends = []

    def take(peer):
        if not 0 <= peer < p:
            return None
        box = stage.empty()
        dist.irecv(box, peer).wait()
        return box

    def give(tensor, peer):
        if 0 <= peer < p:
            tensor = tensor.clone()
            open_sends.append((tensor, dist.isend(tensor, peer)))

    warmup = min(p - rank - 1, micro_batches)
    forwards, backwards = iter(range(micro_batches)), iter(range(micro_batches))
    for _ in range(warmup):
        give(stage.forward(next(forwards), take(up)), down)
    for k in forwards:
        give(stage.forward(k, take(up)), down)
        give(stage.backward(next(backwards), take(down)), up)
    for k in backwards:
        give(stage.backward(k, take(down)), up)
    [work.wait() for _, work in open_sends]
