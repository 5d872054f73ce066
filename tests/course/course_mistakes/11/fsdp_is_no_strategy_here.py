# reported: choose | zero3 | return dict(
def choose() -> dict:
    return dict(tensor=8, pipeline=1, context=1, data=8, micro_batch=1, strategy="fsdp", recompute="selective")
