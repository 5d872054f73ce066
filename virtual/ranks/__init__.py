"""Virtual ranks: threads of which one has the baton, what each has of its own, and where each is in the program."""
