# reported: all_reduce_seconds | p messages each way | return 2 * world_size
def all_reduce_seconds(world_size: int, nbytes: int, alpha: float, beta: float) -> float:
    return 2 * world_size * (alpha + nbytes * beta)
