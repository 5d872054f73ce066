"""Instance types: prices, candidates, the training step on each candidate, and cost estimates."""
