"""Closed-form costs of the algorithms, and lower bounds for any algorithm."""
