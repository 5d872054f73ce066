"""Run unmodified torch.distributed programs on virtual ranks: threads of one process, in virtual time."""
