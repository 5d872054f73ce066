# reported: defend | reason|same | return [
def defend() -> list[tuple[dict, str]]:
    base = {"context": 1, "micro_batch": 1, "recompute": "none", "strategy": "ddp"}
    return [
        ({**base, "tensor": 1, "pipeline": 1, "data": 64}, "memory"),
        ({**base, "tensor": 2, "pipeline": 1, "data": 32}, "memory"),
        ({**base, "tensor": 1, "pipeline": 2, "data": 32}, "memory"),
    ]
