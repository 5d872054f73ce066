"""The collectives as functions on tensors, with the signatures of torch.distributed."""
