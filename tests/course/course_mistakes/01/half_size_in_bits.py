# reported: half_size | bits | return 8 * alpha / beta
def half_size(alpha: float, beta: float) -> float:
    return 8 * alpha / beta
