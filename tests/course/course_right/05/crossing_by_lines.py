def tree_seconds(world_size: int, nbytes: int, alpha: float, beta: float) -> float:
    up = down = math.ceil(math.log(world_size, 2) - 1e-9) * (alpha + nbytes * beta)
    return up + down


def ring_wins_from(world_size: int, alpha: float, beta: float) -> float:
    p = world_size
    ring = lambda n: 2 * (p - 1) * (alpha + n / p * beta)
    tree = lambda n: tree_seconds(p, n, alpha, beta)
    start = ring(0) - tree(0)
    slope = (tree(1e6) - tree(0)) / 1e6 - (ring(1e6) - ring(0)) / 1e6
    return start / slope
