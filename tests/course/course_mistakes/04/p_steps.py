# reported: ring_seconds | 2 p steps | return 2 * world_size
def ring_seconds(world_size: int, nbytes: int, alpha: float, beta: float) -> float:
    return 2 * world_size * (alpha + nbytes / world_size * beta)
