# reported: half_size | beta / alpha | return beta / alpha
def half_size(alpha: float, beta: float) -> float:
    return beta / alpha
