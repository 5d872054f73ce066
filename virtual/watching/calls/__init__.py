"""Errors in how ranks communicate: pending buffers, file races, groups, and hand-written reductions."""
