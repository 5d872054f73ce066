"""What is kept of a training while it runs: metrics, a log a rank, TensorBoard's curves, torch's profile."""
