"""Provide the collectives as functions on tensors, with the arguments of ``torch.distributed``."""
