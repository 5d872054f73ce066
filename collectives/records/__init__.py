"""Records that simulated and real runs share: traces, calibrations, profiles, and their files."""
