"""Virtual ranks: threads of which one runs at a time, the state of each, and its location in the program."""
