"""Record a training while it runs: metrics, a log for each rank, TensorBoard curves, torch's profiler."""
