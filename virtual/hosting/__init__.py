"""A program's run in a process of its own, which ends with it: forked from a server that has imported torch."""
