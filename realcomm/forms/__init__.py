"""Trainings in every form of parallelism, by torch's own classes on a mesh of ranks."""
