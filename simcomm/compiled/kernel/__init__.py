"""The event loop over arrays, compiled by numba. It imports no other part of the compiled engine."""
