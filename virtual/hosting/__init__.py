"""Run each program in its own process, forked from a server that has imported torch."""
