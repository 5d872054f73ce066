def exchange(mine: torch.Tensor, theirs: torch.Tensor, peer: int) -> None:
    rank = dist.get_rank()
    is_leader = max(rank, peer) == rank
    if is_leader:
        dist.send(mine, peer)
    dist.recv(theirs, peer)
    if not is_leader:
        dist.send(mine, peer)


def find_cycle(waits_for: dict[int, int]) -> list[int]:
    for start in waits_for:
        slow = fast = start
        while fast in waits_for and waits_for[fast] in waits_for:
            slow, fast = waits_for[slow], waits_for[waits_for[fast]]
            if slow == fast:
                cycle, rank = [slow], waits_for[slow]
                while rank != slow:
                    cycle.append(rank)
                    rank = waits_for[rank]
                first = cycle.index(min(cycle))
                return [*cycle[first:], *cycle[:first]]
    return []
