"""Programs of torch.distributed as they stand, on virtual ranks in one process, in virtual time."""
