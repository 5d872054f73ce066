"""User programs: a subprocess executes the user's file and returns the operations of its ranks as numbers."""
