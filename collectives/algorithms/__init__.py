"""The library of collective algorithms: each module explains a family, each function is a rank program."""
