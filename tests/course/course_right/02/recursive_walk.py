def shift(mine: torch.Tensor, received: torch.Tensor) -> None:
    right, left = dist.get_rank() + 1, dist.get_rank() - 1
    if right == dist.get_world_size():
        right = 0
    if left < 0:
        left = dist.get_world_size() - 1
    handles = [dist.irecv(received, left), dist.isend(mine, right)]
    [handle.wait() for handle in handles]


def find_cycle(waits_for: dict[int, int]) -> list[int]:
    def walk(rank: int, seen: list[int]) -> list[int]:
        if rank in seen:
            return seen[seen.index(rank) :]
        if rank not in waits_for:
            return []
        return walk(waits_for[rank], [*seen, rank])

    for rank in waits_for:
        found = walk(rank, [])
        if found:
            while found[0] != min(found):
                found.append(found.pop(0))
            return found
    return []
