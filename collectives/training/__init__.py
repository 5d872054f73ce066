"""The recipe of a training, its parallelism strategy, and the buckets of its gradients."""
