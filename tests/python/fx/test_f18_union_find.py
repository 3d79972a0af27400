"""F18: the sets by which regions of a graph are coloured."""

import pytest

from megengine.fx.experimental.optimization import (
    UnionFind,
)


def test_sets_unite():
    sets = UnionFind(6)
    for number in range(5):
        sets.make_set(number)
    sets.join(0, 1)
    sets.join(3, 4)
    sets.join(1, 4)
    assert len({sets.find(number) for number in (0, 1, 3, 4)}) == 1 != sets.find(2)
    with pytest.raises(KeyError, match="make_set"):
        sets.find(5)
