# reported: choose | than the fastest that fits | return {
def choose() -> dict:
    return {
        "tensor": 16, "pipeline": 4, "context": 1, "data": 1,
        "micro_batch": 1, "strategy": "ddp", "recompute": "full",
    }
