"""The player: one HTML file that replays the messages of runs in a browser, without network access."""
