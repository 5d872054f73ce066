# reported: dollars | must be 888.889 | return tokens / tokens_per_s / 3600 * 8
def dollars(tokens, tokens_per_s, devices, price_per_hour):
    return tokens / tokens_per_s / 3600 * 8 * price_per_hour
