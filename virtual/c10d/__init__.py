"""What torch.distributed calls: a process group, works and a store of virtual ranks, and what c10d keeps of each."""
