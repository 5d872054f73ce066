# told: bubble | is busy
def bubble(stages: int, micro_batches: int) -> float:
    return micro_batches / (micro_batches + stages - 1)
