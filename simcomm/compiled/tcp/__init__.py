"""Messages that gloo carries over TCP: segment by segment, through windows and buffers, on cores that ranks share."""
