# reported: fit | time of the first point | elsewhere: alpha = seconds[0]
def fit(sizes, seconds):
    alpha = seconds[0]
    beta = seconds[-1] / sizes[-1]
    return alpha, beta
