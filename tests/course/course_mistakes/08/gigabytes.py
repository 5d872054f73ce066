# reported: model_state_bytes | 1e\+09th|in bytes | return parameters
def model_state_bytes(parameters, world_size, stage):
    each = [16, 4 + 12 / world_size, 2 + 14 / world_size, 16 / world_size]
    return parameters * each[stage] / 1e9
