# reported: ring_seconds | alpha alone | return 2 *
def ring_seconds(world_size, nbytes, alpha, beta):
    return 2 * (world_size - 1) * (alpha + (nbytes // world_size) * beta // 1)
