"""Commands about what users paste: what is wrong with a run, and what machine it was."""
