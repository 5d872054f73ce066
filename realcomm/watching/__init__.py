"""Record a training run while it is in progress: its metrics, and a log for each rank."""
