"""Commands that predict scenarios, sweeps, device counts, NCCL's choices and instances to rent."""
