def defend():
    base = dict(tensor=1, pipeline=1, context=1, data=64, micro_batch=1, form="zero3", recompute="selective")
    return [
        (base | dict(form="zero2"), "memory"),
        (base | dict(recompute="full"), "compute"),
        (base | dict(tensor=8, pipeline=8, data=1, form="ddp"), "tensor"),
    ]
