"""Mistakes in how ranks call: what is at work, who knows what, which files and groups they share."""
