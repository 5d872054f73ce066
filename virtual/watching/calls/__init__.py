"""Find communication errors: writes to pending buffers, missing waits, file races, wrong hand-written reductions."""
