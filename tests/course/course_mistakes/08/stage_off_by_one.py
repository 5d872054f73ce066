# reported: model_state_bytes | probably stage 0 | return parameters
def model_state_bytes(parameters, world_size, stage):
    p = world_size
    return parameters * (2 / (p if stage > 3 else 1) + 2 / (p if stage > 2 else 1) + 12 / (p if stage > 1 else 1))
