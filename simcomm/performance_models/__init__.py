"""Performance models: predict how long collectives and training steps take on a cluster.

``performance_model(cluster)`` returns the model for a cluster. All models have the same methods.
"""
