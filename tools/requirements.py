"""Prints, for pip, what pyproject.toml lists under the names given.

python3 tools/requirements.py NAME...   build: to build; run: to run; extras: every optional feature that any machine can use; or a dependency group
"""

import sys
import tomllib
from pathlib import Path

described = tomllib.loads((Path(__file__).resolve().parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
project = described["project"]
own = project["name"] + "["  # an extra that is made of others
hardware = ["cuda12", "cuda13", "ray"]  # 1.3 GB that serve nobody without a card, or a cluster; what tests need of it the group test has
extras = [
    name
    for extra, names in project["optional-dependencies"].items()
    for name in names
    if extra not in hardware and not name.startswith(own)
]
lists = {"build": described["build-system"]["requires"], "run": project["dependencies"], "extras": extras}
lists |= described["dependency-groups"]
print(*sorted({requirement for name in sys.argv[1:] for requirement in lists[name]}), sep="\n")
