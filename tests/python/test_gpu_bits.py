"""tools/card/bits.py, which compares a card with the emulated one; and both compilers with each other."""

import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def tool():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[2] / "tools" / "card"))
        import bits

        yield bits
    for name in ("bits", "results"):
        sys.modules.pop(name)


@pytest.fixture(scope="module")
def found(tool):
    return tool.all_bits()


def test_both_compilers_give_the_same_bits(tool, found):
    by_case = {}
    for name, bits in found.items():
        by_case.setdefault(name.rpartition(" by ")[0], set()).add(bits)
    assert len(by_case) == len(tool.DTYPES) * len(list(tool.cases()))
    assert [case for case, bits in by_case.items() if len(bits) != 1] == []


def test_other_bits_are_named(tool, found):
    assert tool.differing(found, found) == []
    assert tool.differing({**found, "exp of float32 by MLIR": "0"}, found) == ["exp of float32 by MLIR"]
