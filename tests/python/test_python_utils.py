"""The small tools below megengine.utils."""

import contextvars
import copy
import os
import sys
import threading
import warnings

import numpy as np
import pytest

from megengine import Tensor
from megengine.experimental import weight_scaler
from megengine.utils import (
    after_fork,
    deprecation,
    future,
    hook,
    http_download,
    max_recursion_limit,
    module_utils,
    naming,
    persistent_cache,
    profile_analyzer,
    tensor_sanity_check,
    tuple_function,
)


@pytest.mark.parametrize("value, expected", [(3, (3, 3)), ((1, 2), (1, 2)), ([0, 1], (0, 1))])
def test_a_pair_comes_from_one_number_or_two(value, expected):
    assert tuple_function._pair(value) == expected


@pytest.mark.parametrize(
    "value, error", [(1.5, TypeError), ("ab", TypeError), ((1, 2, 3), ValueError), (-1, ValueError)]
)
def test_a_pair_of_something_else_is_refused(value, error):
    with pytest.raises(error):
        tuple_function._pair(value)


def test_zero_is_refused_where_it_makes_no_sense():
    assert tuple_function._pair(0) == (0, 0)
    with pytest.raises(ValueError, match="at least 1"):
        tuple_function._pair_nonzero(0)


def test_a_deprecated_function_warns_and_forwards():
    old = deprecation.deprecated_func("1.2", "math", "sqrt", False)
    with pytest.warns(DeprecationWarning, match="math.sqrt"):
        assert old(9) == 3


def test_a_changed_default_warns_only_when_it_is_used():
    @deprecation.deprecated_kwargs_default("1.2", "b", 1)
    def f(a, b=0):
        return a + b

    with pytest.warns(DeprecationWarning, match="default of b"):
        f(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert f(1, 2) == f(1, b=2) == 3


def test_a_future_brings_a_value_to_another_thread():
    box = future.Future()
    thread = threading.Thread(target=box.set, args=(5,))
    thread.start()
    assert box.get() == 5
    thread.join(5)
    assert not thread.is_alive()


def test_a_future_is_set_once():
    box = future.Future(ack=False)
    box.set(1)
    with pytest.raises(RuntimeError, match="value already"):
        box.set(2)


def test_a_hook_handler_removes_its_hook_only():
    hooks = {}
    first, second = hook.HookHandler(hooks, print), hook.HookHandler(hooks, len)
    first.remove()
    first.remove()
    assert list(hooks.values()) == [len] and second.id in hooks


def test_deep_structures_copy_under_the_high_recursion_limit():
    nested = []
    for _ in range(3000):
        nested = [nested]
    before = sys.getrecursionlimit()
    limit = max_recursion_limit.max_recursion_limit()
    with limit, limit:
        copy.deepcopy(nested)
    assert sys.getrecursionlimit() == before


class Node:
    def __init__(self):
        self.items = [1, {"k": (2, 3)}]


def test_expand_structure_reaches_into_lists_dicts_and_tuples():
    node = Node()
    assert module_utils.get_expand_structure(node, "items.1.k.0") == 2
    module_utils.set_expand_structure(node, "items.1.k.0", 7)
    module_utils.set_expand_structure(node, "items.0", 8)
    assert node.items == [8, {"k": (7, 3)}]


def test_a_missing_step_is_named():
    with pytest.raises(KeyError, match="'gone'.*items.1.gone.x"):
        module_utils.get_expand_structure(Node(), "items.1.gone.x")


def test_duplicate_op_names_get_numbers():
    class Op:
        def __init__(self, name):
            self.name = name

    ops = [Op("conv"), Op("conv"), Op("relu")]
    for op in ops:
        naming.AutoNaming.record_opnode(op)
    naming.AutoNaming.remove_duplicate_names()
    assert [op.name for op in ops] == ["conv[0]", "conv[1]", "relu"]


def test_scopes_nest():
    naming.AutoNaming.clear()
    naming.AutoNaming.push_scope("net")
    naming.AutoNaming.push_scope("conv")
    assert naming.AutoNaming.gen_name("weight") == "net.conv.weight"
    naming.AutoNaming.clear()


def test_scopes_are_those_of_a_thread():
    naming.AutoNaming.push_scope("net")
    seen = []

    def other():
        seen.append(naming.AutoNaming.get_scope())
        naming.AutoNaming.push_scope("other")

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen == [""] and naming.AutoNaming.scopes == ["net"]
    contextvars.copy_context().run(naming.AutoNaming.push_scope, "inner")
    assert naming.AutoNaming.get_scope() == "net"
    naming.AutoNaming.pop_scope()
    with pytest.raises(RuntimeError, match="pop_scope without"):
        naming.AutoNaming.pop_scope()


def test_a_cache_is_shared_through_its_file(tmp_path, monkeypatch):
    monkeypatch.setenv("MGE_FASTRUN_CACHE_DIR", str(tmp_path))
    first, second = (
        persistent_cache.PersistentCacheOnServer(),
        persistent_cache.PersistentCacheOnServer(),
    )
    first.put("conv", b"key", b"\x00one")
    second.put("conv", "other", b"two")
    third = persistent_cache.PersistentCacheOnServer()
    assert (third.get("conv", b"key"), third.get("conv", "other"), third.get("x", "y")) == (
        b"\x00one",
        b"two",
        None,
    )


def test_a_damaged_cache_counts_as_empty(tmp_path, monkeypatch):
    monkeypatch.setenv("MGE_FASTRUN_CACHE_DIR", str(tmp_path))
    (tmp_path / "cache.json").write_text("{nonsense")
    assert persistent_cache.PersistentCacheOnServer().get("a", "b") is None


def test_a_download_arrives_whole_or_not_at_all(tmp_path):
    (tmp_path / "source").write_bytes(b"x" * 100_000)
    http_download.download_from_url((tmp_path / "source").as_uri(), tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == b"x" * 100_000
    with pytest.raises(http_download.HTTPDownloadError, match="nowhere"):
        http_download.download_from_url((tmp_path / "nowhere").as_uri(), tmp_path / "other")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "source"]


def test_work_in_a_fresh_thread_returns_and_raises():
    assert after_fork.run_in_fresh_thread(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        after_fork.run_in_fresh_thread(divmod, 7, 0)


def test_a_tuple_of_any_length_comes_from_one_number_or_as_many():
    assert tuple_function.get_ndtuple(3, n=4) == (3, 3, 3, 3) and tuple_function.get_ndtuple([1, 0, 2], n=3) == (1, 0, 2)
    for value, options in (([1, 2], {"n": 3}), (-1, {"n": 2}), ([1, 0], {"n": 2, "allow_zero": False})):
        with pytest.raises(ValueError):
            tuple_function.get_ndtuple(value, **options)
    with pytest.raises(TypeError, match="1.5"):
        tuple_function.get_ndtuple(1.5, n=2)


def test_a_limit_of_ones_own_is_that_high_inside_and_gone_outside():
    before = sys.getrecursionlimit()
    limit = max_recursion_limit.AlternativeRecursionLimit(before + 1234)
    with limit:
        assert sys.getrecursionlimit() == before + 1234
        with limit:
            pass
        assert sys.getrecursionlimit() == before + 1234
    assert sys.getrecursionlimit() == before
    with max_recursion_limit.AlternativeRecursionLimit(before - 10):
        assert sys.getrecursionlimit() == before  # it never lowers


def test_the_command_line_of_the_cache_shows_and_clears_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MGE_FASTRUN_CACHE_DIR", str(tmp_path))
    cache = persistent_cache.PersistentCacheOnServer()
    cache.put("algo", b"key", b"value")
    monkeypatch.setattr(sys, "argv", ["persistent_cache"])
    persistent_cache.main()
    shown = capsys.readouterr().out
    assert "algo: 1 entries, 5 bytes" in shown
    file = shown.rpartition("file: ")[2].strip()
    monkeypatch.setattr(sys, "argv", ["persistent_cache", "--clear"])
    persistent_cache.main()
    assert "algo" not in capsys.readouterr().out and not os.path.exists(file)


def test_memory_that_changes_behind_the_runtimes_back_is_found(monkeypatch):
    """Native code can write into it; here reading gives another value, as it would then."""
    read, was_written = Tensor.numpy, threading.Event()
    monkeypatch.setattr(Tensor, "numpy", lambda x: read(x) + was_written.is_set())
    with pytest.raises(RuntimeError, match=r"memory of Tensor\(.* changed"), tensor_sanity_check.TensorSanityCheck():
        x = Tensor([1.0, 2.0, 3.0])
        was_written.set()
    assert x.tolist() == [2, 3, 4]
    with tensor_sanity_check.TensorSanityCheck():
        x = Tensor([1.0, 2.0, 3.0])
        x += 1
        x[0] = 5.0  # the handle is rebound: no memory changes


def test_a_record_of_a_profile_has_its_rates():
    row = profile_analyzer.Record(0.5, {"id": "7", "name": "conv"}, {"computation": 10, "memory": 4})
    assert (row.flops, row.bandwidth, row.opr_id, row.info["name"]) == (20, 8, 7, "conv")
    unknown = profile_analyzer.Record(0.5, {}, {"memory": 4})
    assert unknown.bandwidth == 8 and isinstance(unknown.flops, profile_analyzer.NonExistNum)


def test_a_filters_factor_brings_its_largest_weight_to_the_norm():
    weight = Tensor([[[[1.0, -4.0]]], [[[0.5, 0.25]]], [[[0.0, 0.0]]]])
    factors = weight_scaler.get_norm_mod_value(weight, 2.0)
    np.testing.assert_allclose(factors.numpy(), np.reshape([0.5, 4, 1], (3, 1, 1, 1)))
