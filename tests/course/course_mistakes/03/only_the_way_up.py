# reported: all_reduce_seconds | one way | return (world_size - 1)
def all_reduce_seconds(world_size: int, nbytes: int, alpha: float, beta: float) -> float:
    return (world_size - 1) * (alpha + nbytes * beta)
