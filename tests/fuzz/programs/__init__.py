"""Random programs: one grammar, many judges. `python -m programs --help`, in tests/fuzz.

MEGJIT_SITE: the folder that has the package, for an interpreter whose environment has torch but not the package.
"""

import os
import sys

if "MEGJIT_SITE" in os.environ:
    sys.path.append(os.environ["MEGJIT_SITE"])  # behind the environment's own packages
