# reported: choose | tensor must be a positive integer | return {
def choose():
    return {
        "tensor": "8", "pipeline": "4", "context": "1", "data": "2",
        "micro_batch": "1", "strategy": "zero1", "recompute": "selective",
    }
