# reported: all_reduce_seconds | one alpha each way | return 2 * (alpha
def all_reduce_seconds(world_size: int, nbytes: int, alpha: float, beta: float) -> float:
    return 2 * (alpha + (world_size - 1) * nbytes * beta)
