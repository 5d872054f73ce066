"""A training step of a language model on a mesh of devices, as closed forms over columns: thousands at once."""
