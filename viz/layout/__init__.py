"""Where nodes and links stand in a picture."""
