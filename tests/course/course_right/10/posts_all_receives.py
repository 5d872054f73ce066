def gpipe(stage, micro_batches: int) -> None:
    rank, last = dist.get_rank(), dist.get_world_size() - 1

    def post(peer):
        boxes = [stage.empty() for _ in range(micro_batches)]
        return [(box, dist.irecv(box, peer)) for box in boxes]

    sends = []
    activations = post(rank - 1) if rank else []
    gradients = post(rank + 1) if rank < last else []
    for k in range(micro_batches):
        if activations:
            activations[k][1].wait()
        out = stage.forward(k, activations[k][0] if activations else None).contiguous()
        if rank < last:
            sends.append((dist.isend(out, rank + 1), out))
    for k in range(micro_batches):
        if gradients:
            gradients[k][1].wait()
        out = stage.backward(k, gradients[k][0] if gradients else None).contiguous()
        if rank:
            sends.append((dist.isend(out, rank - 1), out))
    for work, _ in sends:
        work.wait()
