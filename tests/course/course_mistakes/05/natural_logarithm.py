# reported: tree_seconds | log2 | return 2 * math.log(
def tree_seconds(world_size: int, nbytes: int, alpha: float, beta: float) -> float:
    return 2 * math.log(world_size) * (alpha + nbytes * beta)
