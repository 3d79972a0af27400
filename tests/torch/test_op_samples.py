"""Each operation of torch's own samples, forward and backward: equal to eager mode, refused or left to torch; never another result."""

import warnings

import pytest
import torch
from functorch.compile import aot_function
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.utils import _pytree

from megengine.torch_backend._pair import Pair
from megengine.torch_backend._private import KNOWN, decompositions

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_methods_invocations import op_db

_DTYPES = torch.float32, torch.bfloat16, torch.int64, torch.bool
# What megjit computes by other kernels, or in other ops, in float64: these are run in it, too, and not left to torch.
_IN_DOUBLE = (
    "mm", "matmul", "addmm", "baddbmm", "addbmm", "addmv", "einsum", "linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
    "layer_norm", "group_norm", "batch_norm", "instance_norm", "softmax", "log_softmax", "scaled_dot_product_attention", "cross_entropy",
)  # fmt: skip
_TOLERANCES = {torch.float32: (1e-4, 1e-4), torch.bfloat16: (2e-2, 2e-2), torch.float64: (1e-10, 1e-10)}
# Random numbers are not torch's own; what is not written may be anything; the tensors of a sample do not say what they are a part of.
_RANDOM = (
    "rand", "normal", "uniform", "exponential", "cauchy", "geometric", "bernoulli", "multinomial", "dropout", "empty", "rrelu", "fractional_max_pool",
    "as_strided.partial_views", "multi_head_attention_forward", "ctc_loss", "lowrank",
)  # fmt: skip


def is_random(op):
    return any(each in f"{op.name}.{op.variant_test_name}" for each in _RANDOM)


_MOST_SAMPLES = 3  # of an operation in a dtype
_EVERY = 1 if torch.__version__.startswith(KNOWN[-1]) else 8  # of operations: an older release has a sample of them, for its time
TABLE = decompositions()


def compiled(function, fallback=True):
    """By AOTAutograd, as torch.compile's backend does it, without dynamo in front."""
    pair = Pair({"opt_level": 2}, fallback)
    return aot_function(function, pair.forward, pair.backward, partition_fn=pair.partition, decompositions=TABLE)


def run(function, tensors, directions):
    """Results, and gradients of those that have some."""
    leaves = [each.detach().clone().requires_grad_(each.requires_grad) if isinstance(each, torch.Tensor) else each for each in tensors]
    results = [each for each in _pytree.tree_leaves(function(*leaves)) if isinstance(each, torch.Tensor)]
    with_grads = [each for each in results if each.requires_grad]
    found = [each for each in leaves if each.requires_grad]
    grads = torch.autograd.grad(with_grads, found, directions(with_grads), allow_unused=True) if with_grads and found else ()
    return [each.detach() for each in results], list(grads)


def directions(results):
    generator = torch.Generator().manual_seed(7)
    return [torch.randn(each.shape, generator=generator).to(each.dtype) for each in results]


def samples(op, dtype):
    gradients = op.supports_autograd and dtype.is_floating_point
    found = list(op.sample_inputs("cpu", dtype, requires_grad=gradients))
    return found[:: max(1, len(found) // _MOST_SAMPLES)][:_MOST_SAMPLES]


def function_of(op, sample):
    """(Function of the tensors of a sample, these tensors)."""
    leaves, form = _pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [place for place, each in enumerate(leaves) if isinstance(each, torch.Tensor)]

    def function(*tensors):
        given = list(leaves)
        for place, each in zip(places, tensors, strict=True):
            given[place] = each
        first, args, kwargs = _pytree.tree_unflatten(given, form)
        return op(first, *args, **kwargs)

    return function, [leaves[place] for place in places]


def compare(got, want, exact):
    """As close as the dtype allows, or (to a run in float64, if there is one) twice as close as torch."""
    for place, (mine, theirs) in enumerate(zip(got, want, strict=True)):
        if theirs is None or mine is None:
            assert mine is theirs
            continue
        assert mine.dtype is theirs.dtype and mine.shape == theirs.shape
        rtol, atol = _TOLERANCES.get(theirs.dtype, (0, 0))
        size = theirs.abs().nan_to_num(0, 0, 0).max().item() if theirs.numel() and theirs.is_floating_point() else 0
        try:
            torch.testing.assert_close(mine, theirs, rtol=rtol, atol=atol * max(1, size), equal_nan=True)
        except AssertionError:
            right = exact()[place] if theirs.is_floating_point() else None
            if right is None or not (mine - right).abs().max() <= 2 * (theirs - right).abs().max():
                raise


def check(op, dtype, sample):
    function, tensors = function_of(op, sample)
    try:
        want = sum(run(function, tensors, directions), [])
    except Exception:
        return  # torch cannot, either
    if not all(type(each) is torch.Tensor and each.layout is torch.strided for each in want if each is not None):
        return

    def exact():
        wide = [each.detach().double().requires_grad_(each.requires_grad) if each.is_floating_point() else each for each in tensors]
        return sum(run(function, wide, directions), [])

    try:
        got = sum(run(compiled(function, dtype is not torch.float64), tensors, directions), [])
    except (DataDependentOutputException, DynamicOutputShapeException):
        return  # dynamo breaks the graph there
    if op.name == "topk":  # which of equal ones it finds, and what gets a gradient, is not promised
        got, want = got[:1], want[:1]
    compare(got, want, exact)


@pytest.mark.parametrize("op", [op for op in op_db if not is_random(op)][::_EVERY], ids=lambda op: f"{op.name}.{op.variant_test_name}".rstrip("."))
def test_samples(op):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for dtype in (*_DTYPES, *[torch.float64] * (op.name.rpartition(".")[2] in _IN_DOUBLE)):
            if op.supports_dtype(dtype, "cpu"):
                for sample in samples(op, dtype):
                    if not sample.kwargs.get("dropout_p"):
                        check(op, dtype, sample)
