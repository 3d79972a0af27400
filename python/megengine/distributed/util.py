"""Names of earlier releases."""

from .helper import get_free_ports as get_free_ports
