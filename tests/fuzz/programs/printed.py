"""A failing program as a script that runs by itself: the program, the way that it is run, and what both give."""

import inspect

from . import ways
from .grammar import WORD, Program
from .judges import JUDGES, Finding

_IMPORTS = """\
import inspect
import io
import re

from megengine import device
from megengine.jit import SublinearMemoryConfig, dump_functions, trace
from megengine.utils.comp_graph_tools import GraphInference
from megengine.utils.network import Network
"""
_SHOW = """
def shown(wrap):
    for returned, arguments, state in program(wrap):
        if isinstance(returned, Exception):
            print("   ", type(returned).__name__, *str(returned).splitlines(), sep="\\n    ")
        else:
            print("   ", returned, [t.numpy().tolist() for t in state])

print("eager mode")
shown(lambda f: f)
print({name!r})
shown({make})
"""


def script(program: Program, finding: Finding) -> str:
    head = f"# judge {finding.judge}, {finding.mode}, call {finding.call}: {finding.kind}\n"
    head += "".join(f"# {line}\n" for line in finding.detail.splitlines())
    modes = {mode.name: mode for mode in JUDGES[finding.judge].modes}
    if finding.mode not in modes:
        return head + program.text() + "\nfor returned, *_ in program(lambda f: f):\n    print(returned)\n"
    make = modes[finding.mode].make
    names = set(WORD.findall(make))
    sources = [inspect.getsource(value) for name, value in vars(ways).items() if name in names | {"Refused", "leaves", "as_returned"} and inspect.getmodule(value) is ways]
    return head + program.text() + "\n" + _IMPORTS + "\n" + "\n".join(sources) + _SHOW.format(name=finding.mode, make=make)
