# For type checkers; at run time megengine._older_names finds it.
from .._compat.network_node import *
