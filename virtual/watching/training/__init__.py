"""Find errors in training: gradients, parameters, states and data that should be equal on ranks, or should differ."""
