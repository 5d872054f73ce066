"""Collect the library of collective algorithms. Each module explains one family; each function is a rank program.

In cost formulas, p is the number of ranks and n the size of the buffer in bytes. A message takes alpha seconds plus
beta seconds per byte. Reducing or copying takes gamma seconds per byte.
"""
