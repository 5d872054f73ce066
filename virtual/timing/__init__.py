"""The times when operations finish: from a simulated network, from NCCL's model, or measured on this machine."""
