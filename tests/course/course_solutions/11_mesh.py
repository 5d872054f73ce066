def bytes_per_device(parameters: int, tensor: int, pipeline: int, data: int, stage: int) -> float:
    mine = parameters / (tensor * pipeline)
    weights, gradients, state = 2 * mine, 2 * mine, 12 * mine
    if stage >= 1:
        state /= data
    if stage >= 2:
        gradients /= data
    if stage >= 3:
        weights /= data
    return weights + gradients + state


def dollars(tokens: float, tokens_per_s: float, devices: int, price_per_hour: float) -> float:
    return tokens / tokens_per_s / 3600 * devices * price_per_hour


def mesh(tensor: int, pipeline: int, data: int, micro_batch: int, strategy: str, recompute: str) -> dict:
    return {
        "tensor": tensor, "pipeline": pipeline, "context": 1, "data": data,
        "micro_batch": micro_batch, "strategy": strategy, "recompute": recompute,
    }  # fmt: skip


def choose() -> dict:
    return mesh(1, 1, 64, 1, "zero3", "selective")


def defend() -> list[tuple[dict, str]]:
    return [
        (mesh(1, 1, 64, 1, "ddp", "none"), "memory"),
        (mesh(8, 1, 8, 1, "zero3", "selective"), "sync"),
        (mesh(8, 8, 1, 1, "ddp", "selective"), "tensor"),
    ]
