# reported: ring_seconds | swapped | return 2 *
def ring_seconds(world_size, nbytes, alpha, beta):
    return 2 * (world_size - 1) * (beta + nbytes / world_size * alpha)
