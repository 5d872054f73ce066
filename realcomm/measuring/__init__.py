"""Measure collectives and calibrations on real ranks."""
