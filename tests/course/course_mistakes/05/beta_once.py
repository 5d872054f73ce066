# reported: tree_seconds | all bytes sent once | return 2 *
def tree_seconds(world_size: int, nbytes: int, alpha: float, beta: float) -> float:
    return 2 * (math.log2(world_size) * alpha + nbytes * beta)
