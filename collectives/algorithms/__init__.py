"""The library of rank programs: one module a family, one function an algorithm."""
