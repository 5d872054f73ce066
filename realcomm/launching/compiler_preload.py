"""What the server of ranks preloads: by being imported, it imports torch's compiler without a folder being left."""

from realcomm.launching.compiler_folder import import_compiler

import_compiler()
