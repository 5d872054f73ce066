"""What a training is: its recipe, how it is spread over devices, and the buckets in which its gradients travel."""
