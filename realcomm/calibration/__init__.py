"""Calibrate this machine, alone, or alternating with runs to compare with predictions."""
