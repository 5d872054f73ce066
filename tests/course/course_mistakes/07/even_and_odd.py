# reported: make_groups | must have the ranks \[0, 1\], not \[0, 2\] | return inside, across
def make_groups(racks):
    rank, p = dist.get_rank(), dist.get_world_size()
    even, odd = dist.new_group(list(range(0, p, 2))), dist.new_group(list(range(1, p, 2)))
    inside, across = (odd if rank % 2 else even), None
    for first in range(0, p, 2):
        pair = dist.new_group([first, first + 1])
        if rank in (first, first + 1):
            across = pair
    return inside, across
