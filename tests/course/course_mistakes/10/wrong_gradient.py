# reported: one_f_one_b | gradient of micro batch 1 | backward(i)
def one_f_one_b(stage, micro_batches: int) -> None:
    rank, p = dist.get_rank(), dist.get_world_size()
    sent = []

    def forward(i):
        inputs = None
        if rank > 0:
            inputs = stage.empty()
            dist.recv(inputs, rank - 1)
        outputs = stage.forward(i, inputs)
        if rank < p - 1:
            sent.append(dist.isend(outputs, rank + 1))

    def backward(i):
        gradient = None
        if rank < p - 1:
            gradient = stage.empty()
            dist.recv(gradient, rank + 1)
        gradient = stage.backward(i, gradient)
        if rank > 0:
            sent.append(dist.isend(gradient, rank - 1))

    warmup = min(p - 1 - rank, micro_batches)
    for i in range(warmup):
        forward(i)
    for i in range(warmup, micro_batches):
        forward(i)
        backward(i)
    for i in range(warmup):
        backward(i)
    for request in sent:
        request.wait()
