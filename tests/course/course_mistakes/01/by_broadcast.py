# reported: measure | broadcast is not allowed | dist.broadcast(
def measure(nbytes: int) -> float:
    buffer = torch.zeros(nbytes, dtype=torch.uint8)
    begin = time.perf_counter()
    dist.broadcast(buffer, src=0)
    dist.broadcast(buffer, src=1)
    return (time.perf_counter() - begin) / 2
