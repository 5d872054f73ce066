"""What both wings write and read: traces, summaries, calibrations, and how files are written."""
