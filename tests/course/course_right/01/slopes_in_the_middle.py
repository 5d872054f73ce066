def fit(sizes, seconds):
    import statistics

    pairs = list(zip(sizes, seconds))
    slopes = [(t - s) / (m - n) for (n, s), (m, t) in zip(pairs, pairs[1:])]
    beta = statistics.median(slopes)
    alpha = statistics.median(s - beta * n for n, s in pairs)
    return float(alpha), float(beta)


def half_size(alpha, beta):
    return 1 / (beta / alpha)
