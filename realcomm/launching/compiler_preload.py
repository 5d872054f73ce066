"""What the server of ranks preloads: by being imported, it imports torch's compiler without a folder being left."""

from realcomm.launching.torch_process import import_compiler

import_compiler()
