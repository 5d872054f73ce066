"""Mistakes that stop nothing, so that only numbers are wrong: each is known by a watcher of what ranks do."""
