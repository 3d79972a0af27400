"""The graph that fx and traced_module stand on: order, uses and names under edits."""

import pickle

import pytest

from megengine._graph.core import Call, Graph, GraphError, copy_calls
from megengine._graph.names import Namespace
from megengine._graph.rows import Row, dot, link, table
from megengine._graph.tree import Value


class Step(Call, Value):
    """A call with one value: itself."""

    def __init__(self, name, *args, **kwargs):
        super().__init__(args, kwargs)
        self.name = name


class Result(Value):
    def __init__(self, name):
        super().__init__()
        self.name = name


class Split(Call):
    """A call with two values."""

    outputs = ()

    def __init__(self, *args):
        super().__init__(args)
        self.outputs = (Result("left"), Result("right"))


def chain(*names):
    graph, last = Graph(), None
    for name in names:
        last = Step(name, *([last] if last else []))
        graph.insert(last)
    return graph


def names(graph):
    return [call.name for call in graph]


def test_arguments_tell_their_values_who_uses_them():
    a, b = Step("a"), Step("b")
    user = Step("user", [a, {"key": b}], part=slice(a, None))
    assert user.inputs == [a, b] and list(a.users) == [user]
    user.args = (b,)
    user.kwargs = {}
    assert not a.users and list(b.users) == [user]


def test_arguments_cannot_be_changed_in_place():
    user = Step("user", [1, 2], table={"a": 1})
    with pytest.raises(TypeError, match="assign a new tree"):
        user.args[0].append(3)
    with pytest.raises(TypeError, match="assign a new tree"):
        user.kwargs["other"] = 3
    assert pickle.loads(pickle.dumps(user.args)) == ([1, 2],)


def test_values_of_a_call_with_two_results_have_users_of_their_own():
    graph, start = Graph(), Step("start")
    split = Split(start)
    left, right = split.outputs
    for call in (start, split, Step("end", left)):
        graph.insert(call)
    graph.check()
    assert not right.users
    with pytest.raises(GraphError, match="used by 'end'"):
        graph.erase(split)


def test_iteration_goes_on_when_calls_are_erased_or_inserted():
    graph = chain("a", "b", "c", "d")
    seen = []
    for call in graph:
        seen.append(call.name)
        if call.name == "b":
            call.replace_all_uses(graph.first)
            following = graph.following(call)
            graph.erase(call)
            graph.insert(Step("new"), before=graph.following(following))
    assert seen == ["a", "b", "c", "new", "d"] and names(graph) == ["a", "c", "new", "d"]
    assert [call.name for call in reversed(graph)] == ["d", "new", "c", "a"] and len(graph) == 4


def test_a_call_moves_to_another_place():
    graph = chain("a", "b")
    graph.insert(Step("c"))
    graph.move(graph.last, before=graph.first)
    assert names(graph) == ["c", "a", "b"]
    graph.move(graph.first)
    assert names(graph) == ["a", "b", "c"]


def test_erasing_a_used_call_names_the_user_and_its_line():
    graph = chain("a", "b")
    graph.last.source = "model.py:7"
    with pytest.raises(GraphError, match=r"cannot erase 'a'.*'b' \(model.py:7\)"):
        graph.erase(graph.first)


def test_a_cycle_is_found():
    graph = chain("a", "b")
    graph.last.replace_input(graph.first, graph.last)
    with pytest.raises(GraphError, match="'b' reads its own result"):
        graph.check()


def test_a_wrong_order_is_found():
    graph = chain("a", "b")
    graph.move(graph.first)
    with pytest.raises(GraphError, match="'b' reads 'a' before it is made"):
        graph.check()


def test_an_erased_input_is_found():
    graph = chain("a")
    stray = Step("stray")
    graph.insert(Step("user", stray))
    with pytest.raises(GraphError, match="reads 'stray', which is not in this graph"):
        graph.check()
    graph.check(known=[stray])


def test_dead_calls_are_erased_from_the_end():
    graph = chain("a", "b", "c")
    graph.insert(kept := Step("kept", graph.first))
    assert graph.erase_dead(lambda call: call is kept) == 2 and names(graph) == ["a", "kept"]


def test_copies_read_copies():
    graph, env, copied = chain("a", "b", "c"), {}, Graph()

    def clone(call, args, kwargs):
        new = Step(call.name + "_", *args, **kwargs)
        copied.insert(new)
        return new

    copy_calls(graph, env, clone)
    copied.check()
    assert names(copied) == ["a_", "b_", "c_"] and all(env[call] is not call for call in graph)


def test_names_are_unique_and_never_words_of_python():
    names = Namespace()
    assert [names.take(name) for name in ("add", "add", "sum", "class", "0.conv", "add_1")] == [
        "add", "add_1", "sum_1", "class_1", "_0_conv", "add_2",
    ]  # fmt: skip


def test_tables_align_and_dot_escapes():
    assert table(["op", "name"], [["call", "x"]]) == "op    name\n----  ----\ncall  x"
    row = Row("function", 'say "x"\n\\', "f")
    link(row, [row])
    text = dot('"g', [row])
    assert text.startswith('digraph "\\"g" {')
    assert r'"say \"x\"\n\\" [label="say \"x\"\n\\\nfunction f"' in text
    assert r'"say \"x\"\n\\" -> "say \"x\"\n\\";' in text
