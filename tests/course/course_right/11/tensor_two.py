def choose() -> dict:
    return dict(tensor=2, pipeline=1, context=1, data=32, micro_batch=1, form="zero3", recompute="selective")
