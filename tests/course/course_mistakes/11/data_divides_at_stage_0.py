# reported: bytes_per_device | stage 0 | return 16
def bytes_per_device(parameters: int, tensor: int, pipeline: int, data: int, stage: int) -> float:
    return 16 * parameters / (tensor * pipeline * data)
