def choose() -> dict:
    return dict(tensor=2, pipeline=8, context=2, data=2, micro_batch=1, strategy="zero3", recompute="none")
