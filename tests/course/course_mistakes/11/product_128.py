# reported: choose | must use 64 devices, not 128 | return {
def choose() -> dict:
    return {
        "tensor": 8, "pipeline": 2, "context": 1, "data": 8,
        "micro_batch": 1, "strategy": "zero1", "recompute": "selective",
    }
