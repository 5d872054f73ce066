# reported: choose | layers|heads|divide | return {
def choose() -> dict:
    return {
        "tensor": 1, "pipeline": 64, "context": 1, "data": 1,
        "micro_batch": 1, "strategy": "zero1", "recompute": "none",
    }
