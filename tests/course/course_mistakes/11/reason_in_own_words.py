# reported: defend | a reason must be one of | return [
def defend():
    base = {"context": 1, "micro_batch": 1, "recompute": "none"}
    return [
        ({**base, "tensor": 1, "pipeline": 1, "data": 64, "strategy": "ddp"}, "does not fit into 80 GB"),
        ({**base, "tensor": 1, "pipeline": 16, "data": 4, "strategy": "zero1"}, "pipeline"),
        ({**base, "tensor": 64, "pipeline": 1, "data": 1, "strategy": "ddp"}, "tensor"),
    ]
