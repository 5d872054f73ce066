"""A scenario as a job for clusters that a scheduler runs: Slurm's sbatch file, Kubernetes' indexed Job."""
