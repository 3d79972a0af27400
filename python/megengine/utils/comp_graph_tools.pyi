# For type checkers; at run time megengine._older_names finds it.
from .._compat.comp_graph_tools import *
from .._compat.comp_graph_tools import load_file as load_file
