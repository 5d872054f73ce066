"""Watch each rank's calls for silent errors, which make results wrong without stopping the program."""
