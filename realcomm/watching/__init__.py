"""Record a training while it runs: its metrics, and a log for each rank."""
