"""replace_pattern: what matches, and what is put there (F9)."""

import operator

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import fx


def count(program, pattern, replacement):
    gm = fx.symbolic_trace(program)
    found = len(fx.replace_pattern(gm, pattern, replacement))
    gm.graph.lint()
    return found


def test_numbers_are_taken_by_inputs():
    gm = fx.symbolic_trace(lambda x: F.clip(x * 0.5, 0, 6))
    fx.replace_pattern(gm, lambda x, c: F.clip(x, 0, c), lambda x, c: F.minimum(F.relu(x), c))
    assert "minimum(relu, 6)" in gm.code


def test_numbers_in_the_pattern_match_themselves_only():
    pattern, replacement = (lambda x: x * 2), (lambda x: x + x)
    assert count(lambda x: x * 2, pattern, replacement) == 1
    assert count(lambda x: x * 3, pattern, replacement) == 0
    assert count(lambda x: x * 2.0, pattern, replacement) == 0


@pytest.mark.parametrize(
    "program",
    [
        lambda x: F.sum(x, -1),
        lambda x: F.sum(x, axis=-1),
        lambda x: F.sum(inp=x, axis=-1, keepdims=False),
    ],
)
def test_arguments_match_however_they_are_passed(program):
    assert count(program, lambda x: F.sum(x, axis=-1), lambda x: F.max(x, axis=-1)) == 1


def test_commutative_functions_match_in_either_order():
    pattern = lambda x, y: F.relu(x) * 2 + y  # noqa: E731
    keep = lambda x, y: x - y  # noqa: E731
    assert count(lambda x, y: y + 2 * F.relu(x), pattern, keep) == 1
    assert count(lambda x, y: y - 2 * F.relu(x), pattern, keep) == 0
    assert count(lambda x: F.exp(x) - 1, lambda x: 1 - F.exp(x), lambda x: x) == 0


def test_an_input_that_is_read_twice_is_one_value():
    pattern, keep = (lambda x: x * F.sigmoid(x)), (lambda x: F.silu(x))
    assert count(lambda x: x * F.sigmoid(x), pattern, keep) == 1
    assert count(lambda x, y: y * F.sigmoid(x), pattern, keep) == 0


def test_touching_matches_are_all_replaced():
    gm = fx.symbolic_trace(lambda x: -(-(-(-x))))
    matches = fx.replace_pattern(gm, lambda x: -(-x), lambda x: x)
    assert len(matches) == 2 and [node.op for node in gm.graph.nodes] == ["placeholder", "output"]
    gm = fx.symbolic_trace(lambda x: F.relu(F.relu(F.relu(x))))
    assert len(fx.replace_pattern(gm, lambda x: F.relu(x), lambda x: F.maximum(x, 0))) == 3
    assert gm.code.count("maximum(") == 3 and "relu" not in gm.code
    np.testing.assert_array_equal(gm(mge.tensor([-1.0, 2.0])).numpy(), [0, 2])


def test_values_that_others_read_are_not_taken_out():
    def program(x):
        y = F.exp(x)
        return F.relu(y) + y

    assert count(program, lambda x: F.relu(F.exp(x)), lambda x: x) == 0


def test_patterns_with_two_results():
    def pattern(x, y):
        a = F.exp(x)
        return a + y, a * y

    def replacement(x, y):
        a = F.expm1(x)
        return a + y + 1, (a + 1) * y

    gm = fx.symbolic_trace(
        lambda x, y: F.maximum(*[f(F.exp(x), y) for f in (operator.add,)], F.exp(y))
    )
    assert len(fx.replace_pattern(gm, pattern, replacement)) == 0

    def program(x, y):
        a = F.exp(x)
        return F.maximum(a * y, a + y)

    gm = fx.symbolic_trace(program)
    (match,) = fx.replace_pattern(gm, pattern, replacement)
    gm.graph.lint()
    x, y = mge.tensor([0.5]), mge.tensor([2.0])
    np.testing.assert_allclose(gm(x, y).numpy(), program(x, y).numpy(), rtol=1e-5)
    assert len(match.nodes_map) == 5 and "expm1" in gm.code


def test_a_reader_between_the_results_keeps_them():
    def program(x):
        a = F.exp(x)
        b = a + 1
        c = F.sum(b)  # needs one result, and makes the input of the other
        return c * a

    def pattern(x, c):
        a = F.exp(x)
        return a + 1, c * a

    assert count(program, pattern, lambda x, c: (x, c)) == 0


class WithTable(M.Module):
    def __init__(self):
        super().__init__()
        self.scale = mge.Parameter(np.float32([3]))
        self.fc = M.Linear(2, 2)

    def forward(self, x):
        return self.fc(x) * self.scale


class Fused(M.Module):
    def __init__(self):
        super().__init__()
        self.fused = M.Linear(2, 2)

    def forward(self, x):
        return self.fused(x)


def test_attributes_and_modules_match_by_path_and_come_with_the_replacement():
    gm, new = fx.symbolic_trace(WithTable()), Fused()
    assert len(fx.replace_pattern(gm, WithTable(), new)) == 1
    assert gm.fused is new.fused and "self.fc" not in gm.code
    x = mge.tensor(np.ones((1, 2), np.float32))
    np.testing.assert_array_equal(gm(x).numpy(), new(x).numpy())


def test_lists_are_matched_item_by_item():
    gm = fx.symbolic_trace(lambda a, b, c: F.concat([a, b, c], axis=1))
    assert not fx.replace_pattern(gm, lambda a, b: F.concat([a, b], 1), lambda a, b: a + b)
    assert len(fx.replace_pattern(gm, lambda a: F.concat(a, 1), lambda a: F.stack(a, 1))) == 1
    assert "stack([a, b, c], 1)" in gm.code


def test_matches_say_where():
    gm = fx.symbolic_trace(lambda x: F.relu(F.exp(x)) + F.relu(F.exp(x)))
    pattern = fx.symbolic_trace(lambda x: F.relu(F.exp(x)))
    matches = fx.replace_pattern(gm, pattern, lambda x: x)
    assert [match.anchor.name for match in matches] == ["relu", "relu_1"]
    assert {old.name: new.name for old, new in matches[0].nodes_map.items()} == {
        "x": "x",
        "exp": "exp",
        "relu": "relu",
    }


def test_what_cannot_be_a_pattern_is_refused():
    gm = fx.symbolic_trace(lambda x: F.relu(x))
    with pytest.raises(ValueError, match="must compute each of its results"):
        fx.replace_pattern(gm, lambda x: x, lambda x: x)
    with pytest.raises(ValueError, match="the pattern has 1 inputs, the replacement 2"):
        fx.replace_pattern(gm, lambda x: F.relu(x), lambda x, y: x)
    with pytest.raises(ValueError, match="the pattern has 1 results, the replacement 2"):
        fx.replace_pattern(gm, lambda x: F.relu(x), lambda x: (x, x))


def test_5_000_matches_in_10_000_nodes():
    graph = fx.Graph()
    node = graph.placeholder("x")
    for _ in range(5_000):
        node = graph.call_function(F.relu, (graph.call_function(operator.neg, (node,)),))
    graph.output(node)
    gm = fx.GraphModule(M.Module(), graph)
    found = fx.replace_pattern(gm, lambda x: F.relu(-x), lambda x: F.minimum(x, 0))
    assert len(found) == 5_000


def test_a_match_names_the_last_node_and_what_stood_for_what():
    gm = fx.symbolic_trace(lambda x, y: F.relu(x * y) + 1)
    product, last = (next(node for node in gm.graph.nodes if node.target is target) for target in (operator.mul, F.relu))
    (match,) = fx.replace_pattern(gm, lambda a, b: F.relu(a * b), lambda a, b: a - b)
    assert isinstance(match, fx.Match) and match.anchor is last
    by_name = {node.name: value for node, value in match.nodes_map.items()}
    assert [by_name[name].name for name in ("a", "b")] == ["x", "y"] and product in by_name.values()


class Inner(M.Module):
    def forward(self, x):
        y = F.relu(x * 2.0)
        return F.relu(y * 3.0)


class Outer(M.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        return self.inner(x) + 1


def test_types_lines_and_modules_survive_in_chains_of_matches():
    gm = fx.symbolic_trace(Outer())
    old = [node for node in gm.graph.nodes if node.target is F.relu]
    for place, node in enumerate(old):
        node.type, node.meta["noted"] = mge.Tensor, place
    told = [(node.source, node.meta["module"]) for node in old]
    found = fx.replace_pattern(
        gm, lambda x, c: F.relu(x * c), lambda x, c: F.maximum(F.mul(c, x), 0.0)
    )
    new = [node for node in gm.graph.nodes if node.target is F.maximum]
    products = [node for node in gm.graph.nodes if node.target is F.mul]
    assert len(found) == 2 and len({source for source, _ in told}) == 2 and told[0][1] == "inner"
    assert [(node.source, node.meta["module"]) for node in new] == told
    assert [(node.source, node.meta["module"]) for node in products] == told
    assert [(node.type, node.meta["noted"]) for node in new] == [(mge.Tensor, 0), (mge.Tensor, 1)]
    fx.replace_pattern(gm, lambda x, c: F.maximum(x, c), lambda x, c: x)
    assert [node.meta.get("noted") for node in products] == [None, None]
