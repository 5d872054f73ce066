"""Mistakes in how ranks train: gradients, parameters, states and data that should be equal, or should not."""
