"""Collect the library of collective algorithms. Each module explains one family; each function is a rank program.

In cost formulas, p is the number of ranks and n the size of the buffer in bytes. A message takes alpha seconds plus
beta seconds per byte. docs/reference/costs.md has the cost of each algorithm, and the titles of the cited papers.
"""
