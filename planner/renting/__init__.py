"""Predict the training step and the cost of a job on rented instance types, from a price list."""
