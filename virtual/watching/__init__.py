"""Find silent errors, which only make numbers wrong, by watching the calls of ranks."""
