def measure(nbytes: int) -> float:
    mine, theirs = (torch.empty(nbytes, dtype=torch.uint8) for _ in range(2))
    begin = time.perf_counter()
    if dist.get_rank() == 0:
        dist.isend(mine, 1).wait()
        dist.irecv(theirs, 1).wait()
    else:
        dist.irecv(theirs, 0).wait()
        dist.isend(theirs, 0).wait()
    end = time.perf_counter()
    return 0.5 * (end - begin)


def fit(sizes, seconds):
    beta = (seconds[-1] - seconds[0]) / (sizes[-1] - sizes[0])
    return [seconds[0] - beta * sizes[0], beta]
