"""Rank programs carried out on tensors over torch.distributed."""
