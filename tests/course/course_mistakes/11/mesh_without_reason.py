# told: defend | pairs | return [
def defend():
    base = {"context": 1, "micro_batch": 1, "recompute": "full"}
    return [
        {**base, "tensor": 1, "pipeline": 1, "data": 64, "form": "ddp"},
        {**base, "tensor": 1, "pipeline": 16, "data": 4, "form": "zero1"},
        {**base, "tensor": 64, "pipeline": 1, "data": 1, "form": "ddp"},
    ]
