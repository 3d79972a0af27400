"""A failing program as a script that runs by itself: the program, the way that it is run, and what both give."""

import inspect
import re
from types import ModuleType

from . import ways
from .grammar import WORD, Program
from .judges import JUDGES, Finding

_SHOW = """
def shown(wrap):
    for returned, arguments, state in program(wrap):
        if isinstance(returned, Exception):
            print("   ", type(returned).__name__, *str(returned).splitlines(), sep="\\n    ")
        else:
            print("   ", returned, [t.detach().numpy().tolist() for t in state])

print("eager mode")
shown(lambda f: f)
print({name!r})
shown({make})
"""


def script(program: Program, finding: Finding) -> str:
    head = f"# judge {finding.judge}, {finding.mode}, call {finding.call}: {finding.kind}\n"
    head += "".join(f"# {line}\n" for line in finding.detail.splitlines())
    judge = JUDGES[finding.judge]
    modes = {mode.name: mode for mode in judge.modes}
    if finding.mode not in modes:
        return head + program.text() + "\nfor returned, *_ in program(lambda f: f):\n    print(returned)\n"
    make = modes[finding.mode].make
    return head + program.text() + "\n" + way(judge.ways, make) + _SHOW.format(name=finding.mode, make=make)


def way(module: ModuleType, make: str) -> str:
    """The source of what a mode names, with the imports of its module."""
    imports = [line for line in inspect.getsource(module).splitlines() if re.match("(import|from) (?!\\.)", line)]
    names = {*WORD.findall(make), "leaves", "as_returned"}
    own = [value for name, value in vars(module).items() if name in names and inspect.getmodule(value) is module]
    sources = [inspect.getsource(value) for value in dict.fromkeys([ways.Refused, *own])]
    return "\n".join([*imports, "from megengine.jit import SublinearMemoryConfig", "", "", *sources])
