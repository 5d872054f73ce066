def measure(nbytes):
    def ping():
        dist.send(buffer, 1)
        dist.recv(buffer, 1)

    def pong():
        dist.recv(buffer, 0)
        dist.send(buffer, 0)

    buffer = torch.randint(0, 255, (nbytes,), dtype=torch.uint8)
    role = (ping, pong)[dist.get_rank()]
    start = time.perf_counter_ns()
    role()
    return (time.perf_counter_ns() - start) / 2e9
