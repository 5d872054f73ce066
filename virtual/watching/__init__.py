"""Silent mistakes, which only make numbers wrong. Watchers of the ranks' calls find them."""
