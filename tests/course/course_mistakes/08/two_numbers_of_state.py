# reported: model_state_bytes | three of fp32 | elsewhere: each = [
def model_state_bytes(parameters, world_size, stage):
    each = [2 + 2 + 8, 2 + 2 + 8 / world_size, 2 + (2 + 8) / world_size, (2 + 2 + 8) / world_size]
    return parameters * each[stage]
