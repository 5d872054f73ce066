# reported: bytes_per_device | those before it | return n *
def bytes_per_device(parameters, tensor, pipeline, data, stage):
    n = parameters / tensor / pipeline
    return n * (2 / (data if stage == 3 else 1) + 2 / (data if stage == 2 else 1) + 12 / (data if stage == 1 else 1))
