# reported: bubble | one stage too many | return stages
def bubble(stages: int, micro_batches: int) -> float:
    return stages / (micro_batches + stages)
