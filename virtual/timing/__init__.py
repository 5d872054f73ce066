"""Determine when operations finish: with a simulated network, with NCCL's model, or as measured on this machine."""
