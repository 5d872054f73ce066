# reported: bytes_per_device | by data and tensor only | elsewhere: mine = parameters / tensor
def bytes_per_device(parameters, tensor, pipeline, data, stage):
    mine = parameters / tensor
    share = lambda needed: data if stage >= needed else 1
    return mine * (2 / share(3) + 2 / share(2) + 12 / share(1))
