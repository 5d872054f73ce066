"""The times at which operations finish: by a simulated network, by NCCL's model, or by measurements of this machine."""
