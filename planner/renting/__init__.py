"""Estimate prices and training costs of instance types, with the training step on each candidate."""
