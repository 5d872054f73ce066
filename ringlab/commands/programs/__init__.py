"""Commands about programs of torch.distributed that a user brings."""
