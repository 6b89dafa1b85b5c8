"""The seam to llama.cpp, through llama-cpp-python's low-level functions. Nothing else imports llama_cpp.

Parameters are set by the name of their field: a build that lacks one loses that parameter, not the rest.
"""

from worker.engine.context import Context
from worker.engine.model import Model, start

__all__ = ["Context", "Model", "start"]
