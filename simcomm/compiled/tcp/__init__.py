"""Messages carried by gloo over TCP: in segments, through windows and buffers, by ranks that share cores."""
