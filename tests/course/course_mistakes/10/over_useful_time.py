# reported: bubble | idle time over busy | return (stages - 1)
def bubble(stages: int, micro_batches: int) -> float:
    return (stages - 1) / micro_batches
