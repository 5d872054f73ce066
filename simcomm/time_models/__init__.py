"""How long collectives and training steps take on a cluster: a model for each kind of network.

``choice.time_model`` gives the one that fits; whoever holds it asks for times and traces, and never what it is.
"""
