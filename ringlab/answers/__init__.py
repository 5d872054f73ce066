"""What each command answers, as data."""
