# reported: model_state_bytes | bf16 | elsewhere: weights, gradients, state =
def model_state_bytes(parameters: int, world_size: int, stage: int) -> float:
    weights, gradients, state = 2.0, 4.0, 12.0
    return parameters * (
        weights / (world_size if stage >= 3 else 1)
        + gradients / (world_size if stage >= 2 else 1)
        + state / (world_size if stage >= 1 else 1)
    )
