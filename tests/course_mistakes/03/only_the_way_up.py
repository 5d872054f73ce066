# told: all_reduce_seconds | one way
def all_reduce_seconds(world_size: int, nbytes: int, alpha: float, beta: float) -> float:
    return (world_size - 1) * (alpha + nbytes * beta)
