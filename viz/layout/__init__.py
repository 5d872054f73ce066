"""Compute the positions of nodes and links in a drawing of a network."""
