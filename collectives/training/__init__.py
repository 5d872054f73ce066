"""The recipe of a training run, its parallelism strategy, and its gradient buckets."""
