# reported: gpipe | waits|deadlock|gradient | stage.backward(i, gradient) ;; dist.recv(gradient, rank + 1)
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
    for i in range(micro_batches):
        gradient = None
        if rank < p - 1:
            gradient = stage.empty()
            dist.recv(gradient, rank + 1)
        stage.backward(i, gradient)
