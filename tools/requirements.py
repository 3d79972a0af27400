"""Prints, for pip, what pyproject.toml lists under the names given.

python3 tools/requirements.py NAME...   build: to build; run: to run; extras: every optional feature; or a dependency group
"""

import sys
import tomllib
from pathlib import Path

described = tomllib.loads((Path(__file__).resolve().parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
project = described["project"]
own = project["name"] + "["  # an extra that is made of others
extras = [name for names in project["optional-dependencies"].values() for name in names if not name.startswith(own)]
lists = {"build": described["build-system"]["requires"], "run": project["dependencies"], "extras": extras}
lists |= described["dependency-groups"]
print(*sorted({requirement for name in sys.argv[1:] for requirement in lists[name]}), sep="\n")
