# told: fit | time of the first point
def fit(sizes, seconds):
    alpha = seconds[0]
    beta = seconds[-1] / sizes[-1]
    return alpha, beta
