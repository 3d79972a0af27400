"""Tests of from_torch, in the environment of the benchmarks: `make test-torch`.

MEGJIT_SITE: the folder that has the package, which is installed in another environment.
"""

import os
import sys

sys.path.append(os.environ["MEGJIT_SITE"])  # behind this environment's own packages
os.environ.setdefault("MEGJIT_COMPILE", "sync")
