# reported: dollars | return it | print(
def dollars(tokens, tokens_per_s, devices, price_per_hour):
    print(f"{tokens / tokens_per_s / 3600 * devices * price_per_hour:.2f} dollars")
