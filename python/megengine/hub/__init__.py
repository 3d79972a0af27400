"""Models published in repositories: load them by name, with their weights."""

from .hub import help as help
from .hub import import_module as import_module
from .hub import list as list
from .hub import load as load
from .hub import load_serialized_obj_from_url as load_serialized_obj_from_url
from .hub import pretrained as pretrained
