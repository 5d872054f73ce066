def defend():
    base = dict(tensor=1, pipeline=1, context=1, data=64, micro_batch=1, strategy="zero3", recompute="selective")
    return [
        (base | dict(strategy="zero2"), "memory"),
        (base | dict(recompute="full"), "compute"),
        (base | dict(tensor=8, pipeline=8, data=1, strategy="ddp"), "tensor"),
    ]
