"""Virtual ranks: threads that run one at a time, the state of each rank, and its location in the program."""
