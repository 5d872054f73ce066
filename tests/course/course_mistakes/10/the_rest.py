# reported: bubble | is busy | return micro_batches
def bubble(stages: int, micro_batches: int) -> float:
    return micro_batches / (micro_batches + stages - 1)
