def bytes_per_device(parameters, tensor, pipeline, data, stage):
    total = 0.0
    for first_stage, nbytes in ((3, 2), (2, 2), (1, 12)):
        total += nbytes * parameters / (data if stage >= first_stage else 1)
    return total / tensor / pipeline


def dollars(tokens, tokens_per_s, devices, price_per_hour):
    hours = tokens / (tokens_per_s * 60 * 60)
    return hours * (devices * price_per_hour)
