"""A scenario as a job for Slurm; a device mesh as the configuration of a framework."""
