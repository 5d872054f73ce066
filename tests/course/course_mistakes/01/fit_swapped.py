# reported: fit | swapped | return slope, my
def fit(sizes: list[int], seconds: list[float]) -> tuple[float, float]:
    n = len(sizes)
    mx, my = sum(sizes) / n, sum(seconds) / n
    slope = sum((x - mx) * (y - my) for x, y in zip(sizes, seconds)) / sum((x - mx) ** 2 for x in sizes)
    return slope, my - slope * mx
