"""Train a model with data parallelism on real ranks."""
