"""Describe a training run: its hyperparameters, its parallelism strategy, and its gradient buckets."""
