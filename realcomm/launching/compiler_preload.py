"""Import torch's compiler in the fork server, without creating a cache folder."""

from realcomm.launching.torch_process import import_compiler

import_compiler()
