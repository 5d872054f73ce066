"""Trainings in every parallelism strategy, by torch's own classes on a mesh of ranks."""
