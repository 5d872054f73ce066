# reported: choose | tensor | return {
def choose() -> dict:
    return {"tp": 8, "pp": 4, "dp": 2, "cp": 1, "micro_batch": 1, "strategy": "zero1", "recompute": "selective"}
