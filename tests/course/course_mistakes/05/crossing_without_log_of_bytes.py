# reported: ring_wins_from | must be 10000 | return (p - 1 - rounds)
def ring_wins_from(world_size: int, alpha: float, beta: float) -> float:
    p, rounds = world_size, math.log2(world_size)
    return (p - 1 - rounds) * alpha / beta
