"""What was measured of a machine to predict runs on it."""
