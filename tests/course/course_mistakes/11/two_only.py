# reported: defend | different reasons, not 2 | return [
def defend() -> list[tuple[dict, str]]:
    base = {"context": 1, "micro_batch": 1, "recompute": "selective"}
    return [
        ({**base, "tensor": 1, "pipeline": 1, "data": 64, "strategy": "ddp"}, "memory"),
        ({**base, "tensor": 1, "pipeline": 16, "data": 4, "strategy": "zero1"}, "pipeline"),
    ]
