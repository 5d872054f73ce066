"""Replace functions of torch and Python while virtual ranks run, in a process that exits afterwards."""
