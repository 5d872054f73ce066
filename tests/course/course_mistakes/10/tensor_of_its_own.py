# reported: gpipe | (?s)float64|double | dist.recv(box, rank - 1) ;; dist.send(out
def gpipe(stage, micro_batches: int) -> None:
    rank, p = dist.get_rank(), dist.get_world_size()
    for k in range(micro_batches):
        box = torch.empty(4) if rank else None
        if rank:
            dist.recv(box, rank - 1)
        out = stage.forward(k, box)
        if rank < p - 1:
            dist.send(out, rank + 1)
    for k in range(micro_batches):
        box = torch.empty(4) if rank < p - 1 else None
        if rank < p - 1:
            dist.recv(box, rank + 1)
        out = stage.backward(k, box)
        if rank:
            dist.send(out, rank - 1)
