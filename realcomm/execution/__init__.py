"""Execute rank programs on real tensors."""
