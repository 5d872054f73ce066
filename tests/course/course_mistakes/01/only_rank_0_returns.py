# reported: measure | rank 1.*not None; return it | dist.send(buffer, 0)
def measure(nbytes: int) -> float:
    buffer = torch.zeros(nbytes, dtype=torch.uint8)
    if dist.get_rank() == 0:
        start = time.perf_counter()
        dist.send(buffer, 1)
        dist.recv(buffer, 1)
        return (time.perf_counter() - start) / 2
    dist.recv(buffer, 0)
    dist.send(buffer, 0)
