"""Closed-form costs of the algorithms, and lower bounds of any algorithm."""
