# reported: choose | does not fit | return {
def choose() -> dict:
    return {
        "tensor": 1, "pipeline": 1, "context": 1, "data": 64,
        "micro_batch": 1, "strategy": "ddp", "recompute": "full",
    }
