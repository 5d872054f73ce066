"""The library of collective algorithms: each module explains one family, and each function is a rank program."""
