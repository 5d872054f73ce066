def ring_seconds(world_size: int, nbytes: int, alpha: float, beta: float) -> float:
    total = 0.0
    for _ in ("reduce_scatter", "all_gather"):
        for _ in range(1, world_size):
            total += alpha + nbytes * beta / world_size
    return total


def ring_wins_from(world_size: int, alpha: float, beta: float) -> float:
    low, high = 0.0, 1e9
    for _ in range(200):
        middle = (low + high) / 2
        if ring_seconds(world_size, middle, alpha, beta) < 2 * (alpha + (world_size - 1) * middle * beta):
            high = middle
        else:
            low = middle
    return high
