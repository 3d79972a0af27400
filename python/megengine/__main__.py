"""``python -m megengine info``: what this installation has, and which switches it reads."""

import argparse
import platform
import sys

import numpy

import megengine
from megengine import _core
from megengine.version import megjit_version


def info() -> None:
    """Prints versions, kernel compilers, threads and environment variables."""
    print(f"megjit {megjit_version}, megengine API {megengine.__version__}")
    print(f"python {platform.python_version()}, numpy {numpy.__version__}, {platform.machine()}")
    print(f"device {megengine.get_default_device()}, {_core.thread_count()} threads")
    print(f"kernel compilers: {', '.join(_core.backends()) or 'none'}")
    print("environment variables:")
    for name, meaning in _core.switches().items():
        print(f"  {name:<20} {meaning}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m megengine", description=__doc__)
    parser.add_argument("command", choices=["info"])
    parser.parse_args()
    info()
    return 0


if __name__ == "__main__":
    sys.exit(main())
