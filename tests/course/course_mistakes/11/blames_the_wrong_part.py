# told: defend | memory | return [ ;; ({**base, "tensor": 1, "pipeline": 1, "data": 64, "form": "ddp"}, "pipeline"),
def defend():
    base = {"context": 1, "micro_batch": 1, "recompute": "none"}
    return [
        ({**base, "tensor": 1, "pipeline": 1, "data": 64, "form": "ddp"}, "pipeline"),
        ({**base, "tensor": 64, "pipeline": 1, "data": 1, "form": "ddp"}, "tensor"),
        ({**base, "tensor": 1, "pipeline": 1, "data": 64, "form": "zero3"}, "sync"),
    ]
