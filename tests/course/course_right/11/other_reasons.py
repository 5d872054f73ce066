def defend():
    meshes = []
    for tensor, data, pipeline, strategy, why in (
        (1, 64, 1, "zero1", "memory"),
        (4, 16, 1, "zero3", "sync"),
        (8, 1, 8, "ddp", "tensor"),
    ):
        mesh = dict(tensor=tensor, data=data, pipeline=pipeline, context=1)
        meshes.append((mesh | dict(strategy=strategy, micro_batch=1, recompute="selective"), why))
    return meshes
