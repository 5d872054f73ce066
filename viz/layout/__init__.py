"""Positions of nodes and links in a picture."""
