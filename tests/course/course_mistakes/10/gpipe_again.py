# reported: one_f_one_b | keeps|kept | gpipe(stage, micro_batches)
def one_f_one_b(stage, micro_batches: int) -> None:
    gpipe(stage, micro_batches)
