"""What of torch and Python is replaced while virtual ranks run, in a process that ends afterwards."""
