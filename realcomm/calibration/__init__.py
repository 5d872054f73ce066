"""Calibrate this machine, alone or in turns with runs that are to be compared with predictions."""
