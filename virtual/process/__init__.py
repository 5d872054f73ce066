"""The replacements in torch and Python while virtual ranks run, in a process that ends afterwards."""
