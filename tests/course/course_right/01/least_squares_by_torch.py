def fit(sizes: list[int], seconds: list[float]) -> tuple[float, float]:
    points = torch.tensor([[1.0, n] for n in sizes], dtype=torch.float64)
    alpha, beta = torch.linalg.lstsq(points, torch.tensor(seconds, dtype=torch.float64)[:, None]).solution.flatten()
    return alpha, beta


def half_size(alpha: float, beta: float) -> float:
    size = 0.0
    step = alpha / beta
    while size * beta < alpha:
        size += step / 1000
    return size
