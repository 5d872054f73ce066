# reported: dollars | 3600 | return tokens
def dollars(tokens: float, tokens_per_s: float, devices: int, price_per_hour: float) -> float:
    return tokens / tokens_per_s * devices * price_per_hour
