# reported: fit | seconds per byte | return alpha, 1 / beta
def fit(sizes, seconds):
    beta = (seconds[-1] - seconds[0]) / (sizes[-1] - sizes[0])
    alpha = seconds[0] - beta * sizes[0]
    return alpha, 1 / beta
