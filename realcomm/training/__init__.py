"""Train a model on real ranks, data-parallel."""
