"""What is drawn of a scenario, for pictures, players and reports."""
