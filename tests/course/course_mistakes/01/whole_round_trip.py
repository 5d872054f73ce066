# reported: measure | whole round trip | return time.perf_counter() - start
def measure(nbytes: int) -> float:
    buffer = torch.zeros(nbytes, dtype=torch.uint8)
    start = time.perf_counter()
    if dist.get_rank() == 0:
        dist.send(buffer, 1)
        dist.recv(buffer, 1)
    else:
        dist.recv(buffer, 0)
        dist.send(buffer, 0)
    return time.perf_counter() - start
