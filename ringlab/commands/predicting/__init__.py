"""Commands that predict: of scenarios, sweeps, numbers of devices, NCCL, machines to rent."""
