# reported: gpipe | nothing was received | outputs = stage.forward(
def gpipe(stage, micro_batches: int) -> None:
    rank, p = dist.get_rank(), dist.get_world_size()
    for i in range(micro_batches):
        outputs = stage.forward(i, None if rank == 0 else stage.empty())
        if rank < p - 1:
            dist.send(outputs, rank + 1)
    for i in range(micro_batches):
        gradient = stage.backward(i, None if rank == p - 1 else stage.empty())
        if rank > 0:
            dist.send(gradient, rank - 1)
