"""What the parts of tools/gpu_check.sh share: results in a folder, written as they come, and the time that is left.

    python tools/card/NAME.py [--out DIR] [--seconds N] [--again]

parts.json says of each part what it told, and whether it is complete; a complete part is not run again without
--again, one that was cut off goes on where it stopped. card.json is the data file of the card (codegen/cards). All of
a folder is of one card.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# An emulated card interprets its code: what runs there shows that a part works, and no more.
IS_EMULATED = int(os.environ.get("MEGJIT_EMULATED_GPUS") or 0) > 0
CUT_OFF, LEFT_OUT = "cut off", "left out"  # begin the line of a part that is to run again, another day or elsewhere
# Every call is to run the kernels that it is measured with, however long they compile.
os.environ.setdefault("MEGJIT_COMPILE", "sync")
os.environ.setdefault("MEGJIT_COMPILE_BUDGET", "3600")
MEASURES = ("seconds", "per_second", "source")  # of a figure; its other keys say what is measured


def size(on_card: Any, emulated: Any) -> Any:
    return emulated if IS_EMULATED else on_card


def has_torch() -> bool:
    """One that computes on CUDA devices."""
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()


def text_of(value: Any, indent: str = "") -> str:
    """JSON that reads well in a diff: what holds no further list or object stands in one line."""
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if not any(isinstance(item, (dict, list)) for item in items):
        return json.dumps(value)
    names = [f"{json.dumps(key)}: " for key in value] if isinstance(value, dict) else [""] * len(value)
    deeper = indent + " "
    lines = ",\n".join(f"{deeper}{name}{text_of(item, deeper)}" for name, item in zip(names, items, strict=True))
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return f"{opening}\n{lines}\n{indent}{closing}"


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}


def write(path: Path, value: Any) -> None:
    """A reader, or a part that is killed meanwhile, finds the old file or the new one."""
    unfinished = path.with_name(f".{path.name}")
    unfinished.write_text(text_of(value) + "\n")
    unfinished.replace(path)


class Part:
    def __init__(self, name: str, folder: Path, seconds: float, again: bool) -> None:
        self.name, self.folder, self.end = name, folder, time.monotonic() + seconds
        folder.mkdir(parents=True, exist_ok=True)
        self.begin = time.monotonic()
        self._parts = read(folder / "parts.json")
        if again:
            self._parts.pop(name, None)
        self.told: dict[str, Any] = self._parts.setdefault(name, {"complete": False})

    def left(self) -> float:
        return self.end - time.monotonic()

    def note(self, **told: Any) -> None:
        self.told.update(told, seconds=round(time.monotonic() - self.begin, 1))
        write(self.folder / "parts.json", self._parts)

    def row(self, file: str, name: str, value: Any) -> None:
        """Sets one entry of a file that is an object, such as kernels.json."""
        path = self.folder / file
        write(path, {**read(path), name: value})

    def figure(self, of: str, **figure: Any) -> None:
        """Puts one figure into card.json, in the place of an older one of the same thing. `of`: how it was measured."""
        where = "on an emulated card, " if IS_EMULATED else ""
        figure["source"] = f"{of}, {where}measured {datetime.date.today()}"
        path = self.folder / "card.json"
        card = read(path) or {**self.card(), "figures": []}
        kept = [old for old in card["figures"] if thing(old) != thing(figure)]
        write(path, {**card, "figures": sorted([*kept, figure], key=lambda each: each["what"])})

    def check_card(self) -> None:
        """Ends the process where the folder's results are of another card."""
        card = self.card()
        if (known := self._parts.setdefault("card", card)) != card:
            sys.exit(f"{self.name}: {self.folder} has results of {known['name']}, and this is {card['name']}\n  fix: give another --out")

    def card(self) -> dict[str, Any]:
        import megengine as mge

        return {"arch": mge.device.get_cuda_compute_capability(0), "name": mge.device.get_cuda_device_property(0).name}


def thing(figure: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in figure.items() if key not in MEASURES}


def _cut_off(*_: Any) -> None:
    raise TimeoutError(f"{CUT_OFF} by gpu_check.sh")


def run(name: str, seconds: int, main: Callable[[Part], str]) -> int:
    """Runs a part. `main` gives a line for the summary; an AssertionError is a fault of the card or of ours."""
    parser = argparse.ArgumentParser(description=(sys.modules["__main__"].__doc__ or name).splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "gpu_report", metavar="DIR")
    parser.add_argument("--seconds", type=float, default=seconds, help="after which it begins nothing more")
    parser.add_argument("--again", action="store_true", help="also where there are results")
    options = parser.parse_args()
    part = Part(name, options.out, options.seconds, options.again)
    if part.told["complete"]:
        print(f"{name}: there since {part.told['when']}: {part.told['line']}")
        return 0
    part.check_card()
    signal.signal(signal.SIGTERM, _cut_off)
    try:
        line, failed = main(part), False
    except TimeoutError as error:
        line, failed = str(error), False
    except AssertionError as error:
        line, failed = f"FAILED: {error}", True
    is_complete = not failed and not line.startswith((CUT_OFF, LEFT_OUT))
    part.note(complete=is_complete, line=line, when=datetime.datetime.now().isoformat(timespec="minutes"))
    print(f"{name}: {line}, {part.told['seconds']} s", flush=True)
    return 1 if failed else 0
