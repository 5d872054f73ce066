# reported: ring_wins_from | must be 9375 | return 0.0 if p == 1 else
def ring_wins_from(world_size: int, alpha: float, beta: float) -> float:
    p = world_size
    return 0.0 if p == 1 else p * alpha / ((p - 1) * beta)
