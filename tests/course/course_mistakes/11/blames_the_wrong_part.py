# reported: defend | memory | return [ ;; ({**base, "tensor": 1, "pipeline": 1, "data": 64, "strategy": "ddp"}, "pipeline"),
def defend():
    base = {"context": 1, "micro_batch": 1, "recompute": "none"}
    return [
        ({**base, "tensor": 1, "pipeline": 1, "data": 64, "strategy": "ddp"}, "pipeline"),
        ({**base, "tensor": 64, "pipeline": 1, "data": 1, "strategy": "ddp"}, "tensor"),
        ({**base, "tensor": 1, "pipeline": 1, "data": 64, "strategy": "zero3"}, "sync"),
    ]
