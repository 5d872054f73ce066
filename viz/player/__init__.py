"""The player: one HTML file that plays the messages of runs without network access."""
