"""Compares two files of harness.py: for every implementation, how much longer the second took.

    python benchmarks/compare.py BEFORE.json AFTER.json [--all]

A change counts when it is larger than both spreads together and than 3 %. Without --all only ours
and what changed are shown. Exit status 1 when one of ours became slower.
"""

import argparse
import json
import sys


def changes(before: dict, after: dict):
    """(case, implementation, seconds before, seconds after, noise) of what both files have."""
    for case, entry in after["cases"].items():
        old = before["cases"].get(case, {}).get("implementations", {})
        for name, now in entry["implementations"].items():
            if name in old and now["median_s"] and old[name]["median_s"]:
                noise = max(0.03, now["spread"] + old[name]["spread"])
                yield case, name, old[name]["median_s"], now["median_s"], noise


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args()
    with open(options.before) as first, open(options.after) as second:
        before, after = json.load(first), json.load(second)
    slower = 0
    print(f"{'case':22}{'implementation':18}{'before':>12}{'after':>12}{'ratio':>8}")
    for case, name, old, new, noise in changes(before, after):
        ratio = new / old
        word = "" if abs(ratio - 1) <= noise else "slower" if ratio > 1 else "faster"
        ours = name.startswith("megjit")
        slower += ours and word == "slower"
        if options.all or ours or word:
            print(f"{case:22}{name:18}{old * 1e6:10.1f}us{new * 1e6:10.1f}us{ratio:8.3f} {word}")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
