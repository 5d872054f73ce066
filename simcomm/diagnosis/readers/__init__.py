"""Readers of what engineers paste, a format each: lines of a text, or the whole of a structured file, as facts."""
