"""A training step on N GPUs: the job, the GPUs and hosts, memory and time, meshes to choose from, instances to rent."""
