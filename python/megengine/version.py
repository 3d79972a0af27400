"""Version of the package, and of the megengine API that it follows."""

__version__ = "1.13.3"
megjit_version = "0.1.0"
