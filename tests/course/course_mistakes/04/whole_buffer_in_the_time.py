# reported: ring_seconds | sends one chunk | return 2 *
def ring_seconds(world_size: int, nbytes: int, alpha: float, beta: float) -> float:
    return 2 * (world_size - 1) * (alpha + nbytes * beta)
