"""Find training errors: gradients, parameters, optimizer states or data that are wrongly equal or unequal on ranks."""
