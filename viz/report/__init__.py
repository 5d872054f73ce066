"""The report: an answer as one HTML file."""
