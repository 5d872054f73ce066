# told: half_size | bits
def half_size(alpha: float, beta: float) -> float:
    return 8 * alpha / beta
