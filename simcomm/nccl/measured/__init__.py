"""Read measured collectives, compare them with the model, and adapt the model to them."""
