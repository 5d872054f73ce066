"""What pasted files say of a machine and its runs: facts read strictly, a described machine, causes, a verdict.

As the data goes: ``reading`` finds out what each file is, and ``readers`` make facts of it (``evidence.facts``);
``evidence.machine`` makes a described system of facts; ``evidence.expectation`` lays measured tables beside NCCL's
model; ``rules`` look for causes, which ``evidence.causes`` ranks; ``verdict`` is all of it.
"""
