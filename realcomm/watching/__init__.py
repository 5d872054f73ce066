"""Record a training while it runs: metrics, a log for each rank, and profiles of its steps."""
