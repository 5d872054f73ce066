def shift(mine: torch.Tensor, received: torch.Tensor) -> None:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    going = dist.isend(mine, (rank + 1) % world_size)
    dist.recv(received, (rank - 1) % world_size)
    going.wait()


def find_cycle(waits_for: dict[int, int]) -> list[int]:
    left = dict(waits_for)
    while True:  # whoever waits for a rank that goes on will go on as well
        free = [rank for rank, other in left.items() if other not in left]
        if not free:
            break
        for rank in free:
            del left[rank]
    awaited = set(left.values())
    while set(left) - awaited:
        for rank in set(left) - awaited:
            del left[rank]
        awaited = set(left.values())
    if not left:
        return []
    ranks = [min(left)]
    while left[ranks[-1]] != ranks[0]:
        ranks.append(left[ranks[-1]])
    return ranks
