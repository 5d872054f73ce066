"""The player: one HTML file in which the messages of runs are played, without a request to anywhere."""
