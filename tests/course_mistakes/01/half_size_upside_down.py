# told: half_size | beta / alpha
def half_size(alpha: float, beta: float) -> float:
    return beta / alpha
