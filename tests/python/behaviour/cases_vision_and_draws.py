import numpy as np

import megengine as mge
import megengine.functional as F
from megengine import Tensor

IMAGE = np.sin(np.arange(2 * 3 * 6 * 6)).astype("float32").reshape(2, 3, 6, 6)


def ask_warp_affine():
    mat = np.array([[[0.8, 0.3, 0.5], [-0.2, 1.1, -0.7]]] * 2, "float32")
    return F.vision.warp_affine(Tensor(IMAGE), Tensor(mat), (4, 5), border_mode="constant", format="NCHW")


def ask_warp_affine_nhwc():
    mat = np.array([[[1.0, 0.25, 0], [0, 1.0, 0.5]]] * 2, "float32")
    return F.vision.warp_affine(Tensor(IMAGE.transpose(0, 2, 3, 1).copy()), Tensor(mat), (3, 3), border_mode="replicate")


def ask_interpolate_of_bytes():
    x = Tensor(np.arange(16, dtype=np.uint8).reshape(1, 1, 4, 4) * 10)
    return [F.vision.interpolate(x, scale_factor=2, mode=mode) for mode in ("bilinear", "nearest", "bicubic")]


def ask_deformable_psroi_pooling():
    x = np.sin(np.arange(1 * 8 * 8 * 8)).astype("float32").reshape(1, 8, 8, 8)
    rois = np.array([[0, 1, 1, 6, 5], [0, 0, 2, 7, 7]], "float32")
    trans = np.zeros((2, 2, 2, 2), "float32") + 0.1
    return F.deformable_psroi_pooling(Tensor(x), Tensor(rois), Tensor(trans), no_trans=False, part_size=2, pooled_h=2, pooled_w=2, sample_per_part=2, spatial_scale=1.0, trans_std=0.5)


def ask_deformable_psroi_pooling_without_offsets():
    x = np.sin(np.arange(1 * 8 * 8 * 8)).astype("float32").reshape(1, 8, 8, 8)
    rois = np.array([[0, 1, 1, 6, 5]], "float32")
    return F.deformable_psroi_pooling(Tensor(x), Tensor(rois), Tensor(np.zeros((1, 2, 2, 2), "float32")), no_trans=True, part_size=2, pooled_h=2, pooled_w=2, sample_per_part=3, spatial_scale=0.5, trans_std=0.0)


def ask_shapes_of_draws():
    r = mge.random
    draws = [
        r.uniform(0, 1, (2, 3)), r.normal(0, 1, (2, 3)), r.gamma(Tensor([1.0, 2.0]), 1, (3,)), r.beta(Tensor([1.0, 2.0]), Tensor([[1.0], [2.0]]), (3,)),
        r.poisson(Tensor([1.0, 2.0]), (4,)), r.permutation(5), r.uniform(), r.normal(), r.gamma(2, 1), r.poisson(2.0), r.gamma(2, 1, (3,)), r.beta(2, 1),
    ]
    return [(d.shape, str(np.dtype(d.dtype))) for d in draws]


def ask_seeds_repeat():
    a, b = mge.random.RNG(seed=3), mge.random.RNG(seed=3)
    same = np.array_equal(a.normal(0, 1, (3,)).numpy(), b.normal(0, 1, (3,)).numpy())
    mge.random.seed(5)
    x = mge.random.uniform(size=(3,)).numpy()
    mge.random.seed(5)
    return same, np.array_equal(x, mge.random.uniform(size=(3,)).numpy()), np.array_equal(a.uniform(0, 1, (3,)).numpy(), b.uniform(0, 1, (4,)).numpy()[:3])


def ask_empty_and_scalar_batches():
    return F.relu(Tensor(np.zeros((0, 3), "float32"))), F.nn.softmax(Tensor(np.zeros((0, 3), "float32")), axis=1), F.concat([Tensor(np.zeros((0, 3), "float32")), Tensor(np.ones((1, 3), "float32"))])


def ask_names_of_a_network():
    import io as _io

    from megengine.jit import trace
    from megengine.utils.network import Network

    f = trace(lambda x: F.relu(x * 2) + 1, symbolic=True, capture_as_const=True)
    f(Tensor([1.0, -2.0]))
    file = _io.BytesIO()
    f.dump(file, arg_names=["x"], output_names=["y"], keep_opr_name=True, optimize_for_inference=False)
    file.seek(0)
    net = Network.load(file)
    net.modify_opr_names("net")
    names = [opr.name.split(".")[0] for opr in net.all_oprs if opr.name.startswith("net.")]
    return len(names) > 2, set(names), net.metadata and net.metadata.get("graph_modified"), [v.name for v in net.output_vars], [v.name for v in net.input_vars]


def ask_moved_regions_with_more_rows_of_offsets_than_boxes():
    draw = np.random.RandomState(0)
    x, rows = Tensor(draw.rand(1, 4, 8, 8).astype("float32")), draw.rand(5, 2, 3, 3).astype("float32")
    box = Tensor(np.array([[0, 1, 1, 6, 6]], "float32"))
    return [F.deformable_psroi_pooling(x, box, Tensor(rows[:n]), False, 3, 3, 3, 4, 1.0) for n in (1, 2, 5)]


def ask_a_permutation_of_a_tensor_of_one_number():
    return mge.random.permutation(Tensor(7)), mge.random.permutation(Tensor([7])), mge.random.permutation(1)
