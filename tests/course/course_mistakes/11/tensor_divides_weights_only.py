# reported: bytes_per_device | divide all three | elsewhere: state = 12
def bytes_per_device(parameters, tensor, pipeline, data, stage):
    weights = 2 * parameters / (tensor * pipeline) / (data if stage == 3 else 1)
    gradients = 2 * parameters / (tensor * pipeline) / (data if stage >= 2 else 1)
    state = 12 * parameters / (data if stage >= 1 else 1)
    return weights + gradients + state
