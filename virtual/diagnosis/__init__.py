"""What is wrong with a program on virtual ranks, told where it goes wrong: kind, ranks, lines, and what to change."""
