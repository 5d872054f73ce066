# reported: gpipe | GPipe runs all forwards first | dist.recv(gradient, rank + 1) ;; gradient = stage.backward(i, gradient) ;; gradient = stage.empty()
def gpipe(stage, micro_batches: int) -> None:
    rank, p = dist.get_rank(), dist.get_world_size()
    for i in range(micro_batches):
        inputs = None
        if rank > 0:
            inputs = stage.empty()
            dist.recv(inputs, rank - 1)
        outputs = stage.forward(i, inputs)
        if rank < p - 1:
            dist.send(outputs, rank + 1)
        gradient = None
        if rank < p - 1:
            gradient = stage.empty()
            dist.recv(gradient, rank + 1)
        gradient = stage.backward(i, gradient)
        if rank > 0:
            dist.send(gradient, rank - 1)
