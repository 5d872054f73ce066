# reported: ring_wins_from | the wrong sign | return (2 - p)
def ring_wins_from(world_size: int, alpha: float, beta: float) -> float:
    p = world_size
    return (2 - p) * alpha * p / ((p - 1) ** 2 * beta)
