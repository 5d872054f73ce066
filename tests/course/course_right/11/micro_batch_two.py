def choose() -> dict:
    return dict(tensor=1, pipeline=1, context=1, data=64, micro_batch=1, form="zero3", recompute="op")
