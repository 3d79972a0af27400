"""``Network.reset_batch_size`` against the function that was dumped: what is computed from ``x.shape`` follows, and what the
body read of it as a number is refused with the line.
"""

import inspect
import io

import numpy as np
import pytest

import megengine.functional as F
import megengine.module as M
from megengine import Tensor
from megengine.jit import trace
from megengine.utils.network import Network

X = np.arange(32, dtype="float32").reshape(4, 2, 4) - 7


def loaded(function, **options):
    traced = trace(function, symbolic=True, capture_as_const=True)
    traced(Tensor(X))
    file = io.BytesIO()
    traced.dump(file, **options)
    file.seek(0)
    return Network.load(file)


class Scaled(M.Module):
    """A parameter's batch is no batch."""

    def __init__(self):
        super().__init__()
        self.weight = Tensor(np.ones((4, 4), "float32"))

    def forward(self, x):
        return F.matmul(x, self.weight) / int(self.weight.shape[0]) + self.weight.size


FOLLOW = {
    "times the batch": lambda a: F.relu(a) * a.shape[0],
    "a mean by hand": lambda a: a.sum() / a.shape[0],
    "arithmetic": lambda a: a * ((a.shape[0] * 3 - 1) % 5),
    "of a result": lambda a: a * F.flatten(F.relu(a)).shape[0],
    "all extents": lambda a: a + F.prod(a.shape[:2]),
    "from the end": lambda a: a * a.shape[-3],
    "reshape": lambda a: a.reshape(a.shape[0], 4, 2) + a.reshape(a.shape[0], -1).sum(),
    "unpacked": lambda a: (lambda n, c, w: a.reshape(n, c * w).sum() + n - c)(*a.shape),
    "another axis": lambda a: (
        a * int(a.shape[1]) + sum(F.full((1,), 2.0) for _ in range(a.shape[2]))
    ),
    "broadcast": lambda a: F.broadcast_to(a.sum(axis=1, keepdims=True), a.shape) + a,
    "a parameter": Scaled(),
}
FIXED = {
    "int": lambda a: a * int(a.shape[0]),
    "float": lambda a: a / float(F.relu(a).shape[0]),
    "numpy": lambda a: a.sum() + int(np.prod(np.array(a.shape))),
    "a list": lambda a: a.sum() + [int(n) for n in a.shape][0],
    "a loop": lambda a: sum(a.sum() for _ in range(a.shape[0])),
    "a branch": lambda a: a * 2 if a.shape[0] > 3 else a,
    "a comparison": lambda a: a * 2 if a.shape == (4, 2, 4) else a,
    "ones": lambda a: F.ones(a.shape).sum() + a,
    "arange": lambda a: F.arange(a.shape[0]).sum() + a,
    "spread": lambda a: F.broadcast_to(Tensor([[1.0]]), (a.shape[0], 1)).sum() + a,
    "len": lambda a: a.sum() / len(a),
    "size": lambda a: a.sum() / a.size,
    "rows": lambda a: sum(row.sum() for row in a),
    "half": lambda a: a[: a.shape[0] // 2],
}


@pytest.mark.parametrize("optimized", [True, False])
@pytest.mark.parametrize("name", FOLLOW)
def test_what_is_computed_from_extents_follows(name, optimized):
    function = FOLLOW[name]
    net = loaded(function, optimize_for_inference=optimized)
    np.testing.assert_array_equal(*net.infer(X).values(), function(Tensor(X)).numpy())
    for batch in (2, 1, 7):
        net = loaded(function, optimize_for_inference=optimized)
        net.reset_batch_size(batch)
        x = np.resize(X, (batch, 2, 4))
        np.testing.assert_allclose(*net.infer(x).values(), function(Tensor(x)).numpy(), rtol=1e-6)
    file = io.BytesIO()
    net.dump(file)
    file.seek(0)
    again = Network.load(file)
    again.reset_batch_size(3)
    np.testing.assert_allclose(
        *again.infer(X[:3]).values(), function(Tensor(X[:3])).numpy(), rtol=1e-6
    )


@pytest.mark.parametrize("optimized", [True, False])
@pytest.mark.parametrize("name", FIXED)
def test_what_is_read_as_a_number_is_refused_with_its_line(name, optimized):
    function = FIXED[name]
    net = loaded(function, optimize_for_inference=optimized)
    expected = function(Tensor(X)).numpy()
    line = inspect.getsourcelines(function)[1]
    for _ in range(2):
        np.testing.assert_allclose(*net.infer(X).values(), expected, rtol=1e-6)
        with pytest.raises(
            ValueError, match=rf"batch of 4 as a number, at .*test_network_batch.py:{line}\b"
        ):
            net.reset_batch_size(2)
        file = io.BytesIO()
        net.dump(file)
        file.seek(0)
        net = Network.load(file)  # a second dump does not forget
