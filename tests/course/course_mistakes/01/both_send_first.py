# reported: measure | deadlock | dist.send(buffer, other)
def measure(nbytes: int) -> float:
    buffer = torch.zeros(nbytes, dtype=torch.uint8)
    other = 1 - dist.get_rank()
    start = time.perf_counter()
    dist.send(buffer, other)
    dist.recv(buffer, other)
    return (time.perf_counter() - start) / 2
