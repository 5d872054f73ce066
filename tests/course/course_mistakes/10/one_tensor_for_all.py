# reported: gpipe | a tensor of its own | inputs, gradient = stage.empty(), stage.empty() ;; dist.recv(inputs, rank - 1)
def gpipe(stage, micro_batches: int) -> None:
    rank, p = dist.get_rank(), dist.get_world_size()
    inputs, gradient = stage.empty(), stage.empty()
    for i in range(micro_batches):
        if rank > 0:
            dist.recv(inputs, rank - 1)
        outputs = stage.forward(i, inputs)
        if rank < p - 1:
            dist.send(outputs, rank + 1)
    for i in range(micro_batches):
        if rank < p - 1:
            dist.recv(gradient, rank + 1)
        back = stage.backward(i, gradient)
        if rank > 0:
            dist.send(back, rank - 1)
