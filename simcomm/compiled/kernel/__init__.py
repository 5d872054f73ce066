"""Run the event loop over arrays, compiled by numba. This package imports no other part of the compiled engine."""
