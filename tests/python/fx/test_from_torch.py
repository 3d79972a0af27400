"""from_torch where torch is not installed; what it converts is tested in tests/torch (`make test-torch`)."""

import subprocess
import sys

import numpy as np
import pytest

from megengine import Tensor, fx
from megengine.autodiff import GradManager
from megengine.fx.torchlike import FUNCTIONS, aten, layers
from megengine.jit import trace


def run(code):
    """In a process that cannot import torch."""
    program = f"import sys; sys.modules['torch'] = None\n{code}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_fx_and_its_functions_with_torchs_arguments_do_not_import_torch():
    out = run(
        "from megengine import fx; import megengine.functional as F\n"
        "from megengine.fx.torchlike import FUNCTIONS\n"
        "print(FUNCTIONS['max_pool2d'](F.ones((1, 1, 5, 5)), 2, ceil_mode=True).shape)"
    )
    assert out.strip() == "(1, 1, 3, 3)"


def test_from_torch_without_torch_says_what_is_missing():
    out = run(
        "from megengine import fx\n"
        "try:\n    fx.from_torch(None)\n"
        "except ImportError as error:\n    print(error)"
    )
    assert "from_torch" in out and "pip install torch" in out


def test_bicubic_keeps_align_corners():
    x = np.array([[1, 5, 2, 8, 3]], np.float32)
    x = Tensor((x.T @ x)[None, None])
    y = FUNCTIONS["interpolate"](x, (9, 9), mode="bicubic", align_corners=True).numpy()
    np.testing.assert_allclose(y[..., ::2, ::2], x.numpy(), rtol=1e-6)  # centres of pixels lie on each other
    row = x.numpy()[0, 0, 0]
    middle = -0.09375 * (row[0] + row[3]) + 0.59375 * (row[1] + row[2])  # Keys, 1981, with a = -0.75, at 1/2
    np.testing.assert_allclose(y[0, 0, 0, 3], middle, rtol=1e-6)


def test_erfc_of_large_numbers_does_not_cancel():
    y = FUNCTIONS["erfc"](Tensor([3.0, 5.0, 9.0])).numpy()
    np.testing.assert_allclose(y, [2.20904970e-05, 1.53745979e-12, 4.13703175e-37], rtol=2e-6)


def test_threshold_replaces_infinity_and_keeps_nan():
    y = FUNCTIONS["threshold"](Tensor([-np.inf, np.nan, 1.0, 0.0]), 0.0, 7.0).numpy()
    np.testing.assert_array_equal(y, [7, np.nan, 1, 7])


def test_adaptive_pools_take_torchs_shares():
    # Those of `functional` overlap more: in 7 rows for 3 they are 3 high and 2 apart.
    x = np.cos(np.arange(42, dtype=np.float32)).reshape(1, 1, 7, 6)
    shares = [[x[..., rows, columns] for columns in (slice(0, 2), slice(1, 3), slice(3, 5), slice(4, 6))]
              for rows in (slice(0, 3), slice(2, 5), slice(4, 7))]  # fmt: skip
    for name, reduce in (("adaptive_avg_pool2d", np.mean), ("adaptive_max_pool2d", np.max)):
        np.testing.assert_allclose(FUNCTIONS[name](Tensor(x), (3, 4)).numpy()[0, 0], [[reduce(s) for s in row] for row in shares], rtol=1e-6)


def test_scatter_leaves_its_input():
    x = Tensor(np.zeros((2, 3), np.float32))
    y = FUNCTIONS["scatter"](x, 1, Tensor([[0], [2]]), Tensor([[5.0], [6.0]]))
    np.testing.assert_array_equal(y.numpy(), [[5, 0, 0], [0, 0, 6]])
    assert not x.numpy().any()


@pytest.mark.parametrize("places", [[-1], [3], [0, -4, 2]])
@pytest.mark.parametrize("lookup", ["function", "layer", "aten"])
def test_an_embedding_does_not_count_from_the_end(places, lookup):
    table = Tensor(np.arange(6, dtype=np.float32).reshape(3, 2))
    layer = layers.Embedding(3, 2, initial_weight=table)
    rows = {
        "function": lambda i: FUNCTIONS["embedding"](i, table, 0), "layer": layer, "aten": lambda i: aten.OPERATORS["embedding"](table, i, -1, False, False),
    }[lookup]  # fmt: skip
    np.testing.assert_array_equal(rows(Tensor([2, 0])).numpy(), table.numpy()[[2, 0]])
    outside = next(place for place in places if not 0 <= place < 3)
    with pytest.raises(IndexError, match=f"^embedding: index {outside} is out of range: the table has 3 rows\n  fix: "):
        rows(Tensor(places))
    with pytest.raises(IndexError, match="out of range"):
        trace(rows, symbolic=True)(Tensor(places)).numpy()


def test_what_is_no_module_of_torch_is_refused_whether_or_not_torch_is_there():
    with pytest.raises((TypeError, ImportError), match="torch"):
        fx.from_torch(object())


# name: (arguments, gradients of the sum for those that are lists), as torch 2.15 gave them
KINKS = {
    "abs": (([0.0, -2.0],), [[0, -1]]), "leaky_relu": (([0.0, 1.0], 0.25), [[0.25, 1]]), "prelu": (([0.0], [0.25]), [[0.25], [0]]),
    "l1_loss": (([0.0, 1.0], [0.0, 0.0]), [[0, 0.5], [0, -0.5]]), "amax": (([1.0, 1.0, 0.0],), [[0.5, 0.5, 0]]), "amin": (([1.0, 0.0, 0.0],), [[0, 0.5, 0.5]]),
    "max": (([1.0, 1.0],), [[0.5, 0.5]]), "maximum": (([0.0, 1.0], [0.0, 0.0]), [[0.5, 1], [0.5, 0]]), "minimum": (([0.0, 1.0], [0.0, 0.0]), [[0.5, 0], [0.5, 1]]),
    "clamp": (([0.0, 0.5, 1.0], 0, 1), [[0, 1, 0]]), "norm": (([0.0, 0.0],), [[0, 0]]), "std": (([2.0, 2.0],), [[0, 0]]), "celu": (([0.0],), [[1]]),
}  # fmt: skip


@pytest.mark.parametrize("name", KINKS)
def test_gradients_at_kinks_are_torchs(name):
    arguments, want = KINKS[name]
    given = [Tensor(np.float32(each)) if isinstance(each, list) else each for each in arguments]
    tensors = [each for each in given if isinstance(each, Tensor)]
    with GradManager().attach(tensors) as gm:
        gm.backward(FUNCTIONS[name](*given).sum())
    np.testing.assert_allclose(np.concatenate([each.grad.numpy() for each in tensors]), np.concatenate(want), rtol=1e-6)


def test_the_largest_along_an_axis_gives_its_gradient_to_one_element():
    x = Tensor([[1.0, 1.0], [0.0, 2.0]])
    with GradManager().attach([x]) as gm:
        gm.backward(FUNCTIONS["max"](x, 1).values.sum())
    assert x.grad.tolist() == [[1, 0], [0, 1]]


def test_quotients_of_infinities_are_torchs():
    a, b = Tensor([np.inf, -np.inf, 1.0, -1.0, 1.0, -1.0, 0.0, -7.5]), Tensor([2.0, 2.0, np.inf, np.inf, 0.0, 0.0, 0.0, 2.0])
    np.testing.assert_array_equal(FUNCTIONS["floor_divide"](a, b).numpy(), [np.nan, np.nan, 0, -1, np.inf, -np.inf, np.nan, -4])
    assert FUNCTIONS["floor_divide"](7, 2) == 3 and FUNCTIONS["remainder"](-7, 2) == 1
