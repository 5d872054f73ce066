# reported: dollars | one device | return tokens
def dollars(tokens: float, tokens_per_s: float, devices: int, price_per_hour: float) -> float:
    return tokens / tokens_per_s / 3600 * price_per_hour
