def one_f_one_b(stage, micro_batches):
    rank, p = dist.get_rank(), dist.get_world_size()
    done_f = done_b = 0
    pending = []
    while done_b < micro_batches:
        is_forward = done_f < micro_batches and done_f - done_b < p - rank
        if is_forward:
            inputs = None
            if rank > 0:
                inputs = stage.empty()
                dist.recv(inputs, rank - 1)
            result, target, done_f = stage.forward(done_f, inputs), rank + 1, done_f + 1
        else:
            gradient = None
            if rank < p - 1:
                gradient = stage.empty()
                dist.recv(gradient, rank + 1)
            result, target, done_b = stage.backward(done_b, gradient), rank - 1, done_b + 1
        if 0 <= target < p:
            pending.append([result, dist.isend(result, target)])
    for _, handle in pending:
        handle.wait()


def bubble(stages: int, micro_batches: int) -> float:
    from fractions import Fraction

    return float(Fraction(stages - 1, micro_batches + stages - 1))
