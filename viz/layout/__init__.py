"""Where nodes and links are in a picture."""
