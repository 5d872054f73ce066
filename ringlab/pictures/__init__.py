"""Drawings of a scenario for pictures, players and reports."""
