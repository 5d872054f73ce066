"""Describe a training run by its recipe, its parallelism strategy, and its gradient buckets."""
