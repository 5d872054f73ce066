# reported: defend | pairs | return [
def defend():
    base = {"context": 1, "micro_batch": 1, "recompute": "full"}
    return [
        {**base, "tensor": 1, "pipeline": 1, "data": 64, "strategy": "ddp"},
        {**base, "tensor": 1, "pipeline": 16, "data": 4, "strategy": "zero1"},
        {**base, "tensor": 64, "pipeline": 1, "data": 1, "strategy": "ddp"},
    ]
