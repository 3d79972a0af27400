"""Another batch for a dumped function: what a recording with that batch gives, or a refusal with a line; never another number.

Each body of batch_bodies is recorded with a batch of 1, 2 and 3 and resized to 1, 4 and 7. Those of ``FOLLOW`` must be resized
from each of these, so that a rule that refuses everything fails, too.
"""

import io
from pathlib import Path

import numpy as np
import pytest
from batch_bodies import FOLLOW, IMAGES, IMAGES_FOLLOW, OTHERS, RECORDED, WANTED, dumped, values

import megengine.functional as F
from megengine import Parameter, Tensor
from megengine.autodiff import GradManager
from megengine.jit import trace
from megengine.optimizer import SGD
from megengine.utils.comp_graph_tools import GraphInference
from megengine.utils.network import Network


def resized(file, batch, x):
    """The results with another batch, or None where that is refused."""
    file.seek(0)
    net = Network.load(file)
    try:
        net.reset_batch_size(batch)
    except (ValueError, RuntimeError) as error:
        assert "network: " in str(error) or "recorded with one sample" in str(error)
        return None
    file = io.BytesIO()
    net.dump(file)
    return list(GraphInference(io.BytesIO(file.getvalue())).run(x).values())[0]


def check(function, images, must_follow, **options):
    for recorded in RECORDED:
        try:
            file = dumped(function, values(recorded, images), **options)
        except (ValueError, IndexError, RuntimeError, TypeError):
            assert not must_follow
            continue  # of this batch it makes nothing
        for batch in WANTED:
            x = values(batch, images)
            result = resized(file, batch, x)
            if result is None:
                assert not must_follow, f"{recorded} to {batch} is refused"
                continue
            expected = function(Tensor(x)).numpy()
            assert result.shape == expected.shape, f"{recorded} to {batch}"
            np.testing.assert_allclose(
                result, expected, rtol=2e-5, atol=1e-6, err_msg=f"{recorded} to {batch}"
            )


@pytest.mark.parametrize("symbolic_shape", [True, False])
@pytest.mark.parametrize("name", [*FOLLOW, *OTHERS])
def test_of_rows(name, symbolic_shape):
    check((FOLLOW | OTHERS)[name], False, symbolic_shape and name in FOLLOW, symbolic_shape=symbolic_shape)


@pytest.mark.parametrize("name", [*IMAGES_FOLLOW, *IMAGES])
def test_of_images(name):
    check((IMAGES_FOLLOW | IMAGES)[name], True, name in IMAGES_FOLLOW)


def test_a_step_that_takes_gradients_stays_with_its_batch():
    """The mean over the batch is a number in its gradient."""
    weight = Parameter(np.ones((6, 1), "float32"))
    gm, opt = GradManager().attach([weight]), SGD([weight], lr=0.5)

    def step(x):
        with gm:
            loss = F.mean(F.matmul(x, weight))
            gm.backward(loss)
        return loss, weight.grad * 1

    for recorded in RECORDED:
        traced = trace(step, symbolic=True, capture_as_const=True, record_only=True)
        traced(Tensor(values(recorded, False)))
        opt.clear_grad()
        file = io.BytesIO()
        traced.dump(file)
        file.seek(0)
        net = Network.load(file)
        with pytest.raises(ValueError, match=rf"takes the batch of {recorded} as a number, at .*test_batch_battery.py:\d+.* gradients"):
            net.reset_batch_size(5)


@pytest.mark.parametrize("name", ["relu", "columns", "rows", "roll", "concat zeros", "flatten"])
def test_files_of_schema_4_do_not_say_what_follows(name):
    """They give what the function gives, or are refused; written again, they say no more."""
    files = np.load(Path(__file__).with_name("files") / "schema4.npz")
    function = (FOLLOW | OTHERS)[name]
    for recorded in (1, 2):
        file = io.BytesIO(files[f"{recorded} {name}"].tobytes())
        x = values(recorded, False)
        np.testing.assert_allclose(*GraphInference(file).run(x).values(), function(Tensor(x)).numpy(), rtol=1e-6)
        for _ in range(2):
            file.seek(0)
            net = Network.load(file)
            file = io.BytesIO()
            net.dump(file)
            for batch in WANTED:
                result, x = resized(file, batch, values(batch, False)), values(batch, False)
                assert result is not None or recorded == 1 or name != "relu"
                assert result is None or recorded != 1 or batch == 1
                if result is not None:
                    np.testing.assert_allclose(result, function(Tensor(x)).numpy(), rtol=1e-6)


def test_numbers_of_operators_that_were_added_by_hand_are_not_resized():
    file = dumped(lambda x: x * 2, values(2, False))
    for edit in (lambda x: x.reshape(2, -1), lambda x: x[:2], lambda x: F.broadcast_to(x, (2, 2, 6))):
        file.seek(0)
        net = Network.load(file)
        net.add_output(edit(net.output_vars[0]))
        with pytest.raises(ValueError, match="nobody knows whether that is of the batch of 2"):
            net.reset_batch_size(4)
        assert net.input_vars[0].shape == (2, 6)
