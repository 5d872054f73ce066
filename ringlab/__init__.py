"""The front door: the command line, and nothing else."""
