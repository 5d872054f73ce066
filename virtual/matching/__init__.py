"""What ranks post, and which posts meet: the k-th collective of a group, a message by source, destination and tag."""
