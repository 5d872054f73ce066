def model_state_bytes(parameters, world_size, stage):
    shares = {0: (1, 1, 1), 1: (1, 1, world_size), 2: (1, world_size, world_size), 3: (world_size,) * 3}[stage]
    return sum(parameters * nbytes / share for nbytes, share in zip((2, 2, 4 + 4 + 4), shares))
