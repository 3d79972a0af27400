"""GradManager and Function."""

import copy
import gc
import pickle
import weakref

import numpy as np
import pytest

import megengine.functional as F
from megengine import Parameter, Tensor
from megengine.autodiff import Function, GradManager
from megengine.autodiff.grad_manager import GradManagerGroup, get_backwarding_grad_manager


def tensor(*values):
    return Tensor(np.float32(values))


def grad_of(f, *xs, dy=None):
    gm = GradManager().attach(xs)
    with gm:
        gm.backward(f(*xs), dy)
    return [None if x.grad is None else x.grad.numpy() for x in xs]


# -- first order ---------------------------------------------------------------------------------


def test_a_gradient_is_added_to_grad():
    x = tensor(3)
    gm = GradManager().attach(x)
    for times in (1, 2):
        with gm:
            gm.backward(x * x)
        np.testing.assert_array_equal(x.grad.numpy(), [6 * times])


def test_dy_defaults_to_ones_of_any_shape():
    x = Tensor(np.ones((2, 3), np.float32))
    np.testing.assert_array_equal(grad_of(lambda x: x * 2, x)[0], np.full((2, 3), 2))


def test_dy_weighs_the_outputs():
    x = tensor(1, 2)
    np.testing.assert_array_equal(grad_of(lambda x: x * x, x, dy=tensor(10, 100))[0], [20, 400])


def test_several_ys_add_up():
    x = tensor(2)
    gm = GradManager().attach(x)
    with gm:
        gm.backward([x * 3, x * x], [tensor(1), tensor(10)])
    np.testing.assert_array_equal(x.grad.numpy(), [43])


def test_y_none_gives_nothing():
    x = tensor(2)
    with GradManager().attach(x) as gm:
        gm.backward()
    assert x.grad is None


def test_a_tensor_that_y_does_not_depend_on_keeps_its_grad():
    x, other = tensor(2), tensor(5)
    other.grad = before = tensor(7)
    assert grad_of(lambda x, other: x * 2, x, other)[0] == 2
    assert other.grad is before
    assert grad_of(lambda x: x * 2, tensor(1))[0] == 2


def test_operations_before_recording_are_invisible():
    x = tensor(2)
    y = x * x
    gm = GradManager().attach(x)
    with gm, pytest.warns(UserWarning, match="depends on none of the 1 attached"):
        gm.backward(y * 2)
    assert x.grad is None


def test_attaching_inside_recording_counts_from_there():
    x = tensor(2)
    with GradManager() as gm:
        before = x * 5
        gm.attach(x)
        gm.backward(before + x * 3)
    np.testing.assert_array_equal(x.grad.numpy(), [3])


def test_in_place_writes_do_not_change_what_is_differentiated():
    x = tensor(2)
    with GradManager().attach(x) as gm:
        y = x * x
        x += 5
        z = y + x
        gm.backward(z)
    # z = x0^2 + (x0 + 5)
    np.testing.assert_array_equal(x.grad.numpy(), [5])
    np.testing.assert_array_equal(x.numpy(), [7])


def test_a_write_between_recordings_gives_a_new_start():
    x = tensor(2)
    gm = GradManager().attach(x)
    with gm:
        gm.backward(x * x)
    x.grad = None
    x[...] = tensor(5)
    with gm:
        gm.backward(x * x)
    np.testing.assert_array_equal(x.grad.numpy(), [10])


def test_in_place_operators_on_intermediates_differentiate():
    def f(x):
        y = x * 1
        y *= x
        y[0] = y[0] * 10
        return y

    np.testing.assert_array_equal(grad_of(f, tensor(1, 2))[0], [20, 4])


def test_two_tensors_that_share_a_value_have_gradients_of_their_own():
    a = tensor(3)
    b = Tensor(a)
    assert grad_of(lambda a, b: a * a * b, a, b)[0] == 18
    np.testing.assert_array_equal(b.grad.numpy(), [9])


def test_detach_stops_gradients():
    np.testing.assert_array_equal(grad_of(lambda x: x * x.detach(), tensor(3))[0], [3])


def test_integer_paths_just_stop():
    x = tensor(1.5, 2.5)
    with pytest.warns(UserWarning, match="depends on none of the 1 attached"):
        assert grad_of(lambda x: x.astype("int32").astype("float32"), x)[0] is None


def test_half_precision_tensors_have_gradients():
    x = Tensor(np.float16([1, 2]))
    assert grad_of(lambda x: (x * x).sum(), x)[0].dtype == np.float16


# -- protocol ------------------------------------------------------------------------------------


def test_backward_and_record_need_the_right_moment():
    x = tensor(1)
    gm = GradManager().attach(x)
    with pytest.raises(RuntimeError, match="^no computation history"):
        gm.backward(x)
    gm.record()
    with pytest.raises(RuntimeError, match="already"):
        gm.record()
    y = x * 2
    gm.backward(y)
    with pytest.raises(RuntimeError, match="^no computation history"):
        gm.backward(y)
    gm.record()
    gm.release()
    gm.release()
    np.testing.assert_array_equal(x.grad.numpy(), [2])


def test_only_floats_can_be_attached():
    with pytest.raises(AssertionError, match="int32"):
        GradManager().attach(Tensor([1]))
    with pytest.raises(TypeError, match="ndarray|float"):
        GradManager().attach(np.ones(2))


def test_dy_must_fit_y():
    x = tensor(1, 2)
    for dy, text in ((tensor(1), "shape"), ([tensor(1), tensor(2)], "2 gradients")):
        gm = GradManager().attach(x)
        with gm, pytest.raises(ValueError, match=text):
            gm.backward(x * 2, dy)
    assert x.grad is None


def test_callbacks_see_and_replace_the_complete_gradient():
    x, seen = tensor(2), []
    gm = GradManager()
    gm.attach(x, callbacks=lambda t, g: seen.append((t, g.numpy())))
    gm.attach(x, callbacks=[lambda t, g: g * 10, lambda t, g: g + 1])
    with gm:
        gm.backward(x * x + x)
    assert seen[0][0] is x and seen[0][1] == 5
    np.testing.assert_array_equal(x.grad.numpy(), [51])


def test_callbacks_know_their_manager():
    x, seen = tensor(2), []
    gm = GradManager().attach(x, lambda t, g: seen.append(get_backwarding_grad_manager()))
    with gm:
        assert get_backwarding_grad_manager() is None
        gm.backward(x * 2)
    assert seen == [gm] and get_backwarding_grad_manager() is None


def test_attached_tensors_are_held_weakly():
    x, y = tensor(1), tensor(2)
    gm = GradManager().attach([x, y])
    assert gm.attached_tensors() == [x, y] or len(gm.attached_tensors()) == 2
    gone = weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None and len(gm.attached_tensors()) == 1
    with gm:
        gm.backward(y * 2)
    np.testing.assert_array_equal(y.grad.numpy(), [2])


def test_an_exception_leaves_a_clean_manager():
    x = tensor(2)

    def fail(t, g):
        raise ZeroDivisionError("from the callback")

    gm = GradManager().attach(x, fail)
    with pytest.raises(ZeroDivisionError), gm:
        gm.backward(x * 2)
    assert get_backwarding_grad_manager() is None
    other = GradManager().attach(x)
    with other:
        other.backward(x * 3)
    np.testing.assert_array_equal(x.grad.numpy(), [3])
    with pytest.raises(KeyError), other:
        raise KeyError("from the block")
    with other:
        other.backward(x * 3)
    np.testing.assert_array_equal(x.grad.numpy(), [6])


def test_callbacks_run_outside_of_the_recording():
    x = tensor(2)
    gm = GradManager().attach(x, lambda t, g: g * t)
    with gm:
        gm.backward(x * x)
    np.testing.assert_array_equal(x.grad.numpy(), [8])


# -- higher order --------------------------------------------------------------------------------


def test_an_outer_manager_differentiates_the_inner_backward():
    x = tensor(3)
    outer, inner = GradManager().attach(x), GradManager().attach(x)
    with outer:
        with inner:
            inner.backward(x**3)
        first = x.grad
        x.grad = None
        outer.backward(first)
    np.testing.assert_allclose(first.numpy(), [27], rtol=1e-5)
    np.testing.assert_allclose(x.grad.numpy(), [18], rtol=1e-5)


def test_third_order():
    x = tensor(2)
    managers = [GradManager().attach(x) for _ in range(3)]
    with managers[0]:
        with managers[1]:
            with managers[2]:
                managers[2].backward(x**4)
            grad, x.grad = x.grad, None
            managers[1].backward(grad)
        grad, x.grad = x.grad, None
        managers[0].backward(grad)
    np.testing.assert_allclose(x.grad.numpy(), [48], rtol=1e-5)


def test_an_inner_manager_does_not_record_the_outer_backward():
    x = tensor(3)
    outer, inner = GradManager().attach(x), GradManager().attach(x)
    with outer, inner:
        outer.backward(x**3)
        first, x.grad = x.grad, None
        with pytest.warns(UserWarning, match="depends on none of the 1 attached"):
            inner.backward(first)
    assert x.grad is None


@pytest.mark.parametrize("group", [lambda a, b: a | b, lambda a, b: GradManagerGroup([a, b])])
def test_managers_of_a_group_do_not_see_each_other(group):
    x = tensor(3)
    a, b = GradManager().attach(x), GradManager().attach(x)
    with group(a, b):
        y = x**3
        a.backward(y)
        first, x.grad = x.grad, None
        b.backward(y + first * 1)
    # first is a constant to b
    np.testing.assert_allclose(x.grad.numpy(), [27], rtol=1e-5)


def test_groups_merge():
    gms = [GradManager() for _ in range(3)]
    assert (gms[0] | gms[1] | gms[2])._gms == gms
    assert (gms[0] | (gms[1] | gms[2]))._gms == gms
    with pytest.raises(TypeError):
        gms[0] | 3
    with gms[0], pytest.raises(RuntimeError), gms[1] | gms[0]:
        pass
    with gms[1]:  # the failed group has let go of it
        pass


def test_gradients_with_respect_to_dy_give_forward_mode():
    x, dy = tensor(2, 3), tensor(1, 1)
    outer, inner = GradManager().attach(dy), GradManager().attach(x)
    with outer:
        with inner:
            inner.backward(x**2, dy)
        product, x.grad = x.grad, None
        outer.backward(product, tensor(10, 100))
    np.testing.assert_allclose(dy.grad.numpy(), [40, 600], rtol=1e-5)


# -- Function ------------------------------------------------------------------------------------


class Square(Function):
    def forward(self, x):
        self.x = x
        return x * x

    def backward(self, dy):
        return 2 * self.x * dy


class TwoOutputs(Function):
    def forward(self, x, y):
        self.saved = x, y
        return x + y, x * y

    def backward(self, d_sum, d_product):
        self.got = d_sum, d_product
        x, y = self.saved
        dx, dy = (F.zeros_like(x), F.zeros_like(x)) if d_sum is None else (d_sum, d_sum)
        if d_product is not None:
            dx, dy = dx + d_product * y, dy + d_product * x
        return dx, dy


def test_a_function_uses_its_own_backward():
    class Crooked(Square):
        def backward(self, dy):
            return dy * 100

    x = tensor(3)
    np.testing.assert_array_equal(grad_of(lambda x: Crooked()(x), x)[0], [100])
    np.testing.assert_array_equal(Square()(x).numpy(), [9])


def test_several_inputs_and_outputs():
    x, y = tensor(3), tensor(5)
    assert [g[0] for g in grad_of(lambda x, y: sum(TwoOutputs()(x, y)), x, y)] == [6, 4]


def test_an_unused_output_has_gradient_none():
    function = TwoOutputs()
    assert [g[0] for g in grad_of(lambda x, y: function(x, y)[1], tensor(3), tensor(5))] == [5, 3]
    assert function.got[0] is None


def test_none_stops_a_gradient():
    class First(Function):
        def forward(self, x, y):
            return x * y

        def backward(self, dy):
            return dy, None

    x, y = tensor(3), tensor(5)
    assert grad_of(lambda x, y: First()(x, y), x, y) == [np.float32([1]), None]


def test_a_forward_that_returns_its_input_is_linked_too():
    class Negated(Function):
        def forward(self, x):
            return x

        def backward(self, dy):
            return -dy

    np.testing.assert_array_equal(grad_of(lambda x: Negated()(x) * 2 + x, tensor(1))[0], [-1])


def test_backward_of_a_function_is_visible_to_outer_managers():
    x = tensor(3)
    outer, inner = GradManager().attach(x), GradManager().attach(x)
    with outer:
        with inner:
            inner.backward(Square()(x))
        first, x.grad = x.grad, None
        outer.backward(first)
    np.testing.assert_array_equal(x.grad.numpy(), [2])


def test_functions_take_and_give_only_tensors():
    with pytest.raises(TypeError, match="op Function expect type Tensor as inputs, got .*int.*\n  why: argument 0 of Square"):
        Square()(3)

    class Wrong(Square):
        def backward(self, dy):
            return ()

    with pytest.raises(ValueError, match="0 gradients for 1 inputs"):
        grad_of(lambda x: Wrong()(x), tensor(1))

    class Broadcast(Square):
        def backward(self, dy):
            return F.concat([dy, dy])

    with pytest.raises(ValueError, match=r"gradient 0 has shape \(2,\), its input \(1,\)"):
        grad_of(lambda x: Broadcast()(x), tensor(1))

    class Numbers(Square):
        def forward(self, x):
            return 3

    with pytest.raises(TypeError):
        Numbers()(tensor(1))


def test_functions_copy_and_pickle():
    function = Square()
    function.factor = 4
    for twin in (copy.deepcopy(function), pickle.loads(pickle.dumps(function))):
        assert twin.factor == 4
        np.testing.assert_array_equal(grad_of(lambda x, twin=twin: twin(x), tensor(3))[0], [6])


def test_parameters_can_be_attached_like_tensors():
    w = Parameter(np.float32([2]))
    assert grad_of(lambda w: w * 3, w)[0] == 3


def test_backward_warns_when_nothing_is_attached():
    w, gm = Parameter([2.0]), GradManager()
    with pytest.warns(UserWarning, match="no tensor is attached"), gm:
        gm.backward(w * w)
    assert w.grad is None
