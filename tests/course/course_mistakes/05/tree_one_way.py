# reported: tree_seconds | up and down | return math.log2
def tree_seconds(world_size: int, nbytes: int, alpha: float, beta: float) -> float:
    return math.log2(world_size) * (alpha + nbytes * beta)
