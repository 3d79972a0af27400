"""The documented refusals: what a way to run a program may say in place of a number, by the rows that can meet it.

A refusal that is not listed here is a finding, and so is a listed one in a program without a row that names it.
"""

import re

from .grammar import Program

# name -> what the message holds
REFUSALS: dict[str, str] = {
    # A body that reads a value on the host: a symbolic one has none; the others recorded a value and the next call has another.
    "reads": r"is read inside a function traced|this call does not follow the recorded one|the body reads tensor values",
    # A number that the caller changes is a constant of the record.
    "numbers": r"this call does not follow the recorded one",
    # An array in place of a tensor is a constant of the record, and reads the tensor that it is indexed by; a skipped body takes none.
    "arrays": r"this call does not follow the recorded one|is read inside a function traced|NumPy array",
    # A record is of training or of evaluation.
    "modes": r"has train\(\) or eval\(\) been called",
    # A shape that follows from the data: whoever asks for it reads it; -1 and reshape(-1) ask, and the record has the number.
    "selects": r"is read inside a function traced|the body reads tensor values|this call does not follow the recorded one",
    # Branches whose results torch cannot prove to have one size: then data decides it, and under a limit sizes of arguments must not change.
    "sizes": r"in one graph data decides sizes, and sizes of arguments change",
}


def is_documented(error: BaseException, program: Program) -> bool:
    names = {name for row in program.rows() for name in row.may}
    return any(re.search(REFUSALS[name], str(error)) for name in names)
