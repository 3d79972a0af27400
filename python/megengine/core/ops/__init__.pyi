# Made by tools/make_stubs.py (`make stubs`) from the installed extension; not to be edited.
"""Every registered op: ops.<name>(*tensors, **attributes)."""

from collections.abc import Sequence

from megengine import _core
from megengine.tensor import Tensor as _Tensor

def abs(x: object, /) -> _Tensor:
    """|x|. The gradient at 0 is minus the incoming one."""

def acos(x: object, /) -> _Tensor:
    """Arc cosine."""

def acosh(x: object, /) -> _Tensor:
    """Inverse of cosh; NaN below 1."""

def adaptive_avg_pool(x: object, /, *, output: int | Sequence[int]) -> _Tensor:
    """Mean of each of `output` even parts per spatial axis."""

def adaptive_avg_pool_grad(dy: object, /, *, input_shape: int | Sequence[int]) -> _Tensor:
    """Gradient of adaptive_avg_pool; input_shape has x's spatial extents."""

def adaptive_max_pool(x: object, /, *, output: int | Sequence[int]) -> _Tensor:
    """Largest element of each of `output` even parts per spatial axis; a NaN in the part wins."""

def adaptive_max_pool_grad(x: object, dy: object, /, *, output: int | Sequence[int]) -> _Tensor:
    """Gradient of adaptive_max_pool."""

def adaptive_max_pool_pick(x: object, v: object, /, *, output: int | Sequence[int]) -> _Tensor:
    """The elements of v at the positions that adaptive_max_pool takes from x."""

def add(x: object, y: object, /) -> _Tensor:
    """x + y."""

def all_gather(x: object, /, *after: object, group: str, size: int, is_transient: int = 0) -> tuple[_Tensor, ...]:
    """[size, ...]: each process's x, in each of them. is_transient: a graph lets go of the result, and gathers it again, as the pass rematerialize says."""

def all_reduce_max(x: object, /, *after: object, group: str) -> tuple[_Tensor, ...]:
    """Largest value over the processes, in each of them."""

def all_reduce_min(x: object, /, *after: object, group: str) -> tuple[_Tensor, ...]:
    """Smallest value over the processes, in each of them."""

def all_reduce_prod(x: object, /, *after: object, group: str) -> tuple[_Tensor, ...]:
    """Product over the processes, in each of them."""

def all_reduce_sum(x: object, /, *after: object, group: str) -> tuple[_Tensor, ...]:
    """Sum over the processes, in each of them."""

def all_to_all(x: object, /, *after: object, group: str, size: int) -> tuple[_Tensor, ...]:
    """The part for this process of each process's x."""

def argmax(x: object, /, *, axis: int, keepdims: int = 0) -> _Tensor:
    """int32 index of the first largest element along an axis; NaN counts as the largest."""

def argmin(x: object, /, *, axis: int, keepdims: int = 0) -> _Tensor:
    """int32 index of the first smallest element along an axis; NaN counts as the smallest."""

def asin(x: object, /) -> _Tensor:
    """Arc sine."""

def asinh(x: object, /) -> _Tensor:
    """Inverse of sinh."""

def atan(x: object, /) -> _Tensor:
    """Arc tangent."""

def atan2(x: object, y: object, /) -> _Tensor:
    """Angle of the point (y, x): its first input is the ordinate. Gradients at the origin are 0."""

def atanh(x: object, /) -> _Tensor:
    """Inverse of tanh."""

def attention(q: object, k: object, v: object, /, *more: object, scale: float, causal: int = 0, masked: int = 0, drop_prob: float = 0.0, hides: int = 0, zeros: int = 0) -> tuple[_Tensor, ...]:
    """(dropout of softmax(scale * q k' + masks)) v over [n, heads, length, width], and the logarithm of the sums that softmax divides by. causal = 1: a query sees the keys up to its own place. zeros = 1: one that sees no key gets zeros, not NaN. k and v may have fewer heads, each for as many neighbouring ones of q. Behind v: `masked` masks, added one after the other; where hides = 1, which scores stay, and what the others are; a random key, where drop_prob > 0."""

def attention_grad(q: object, k: object, v: object, y: object, lse: object, dy: object, /, *more: object, scale: float, causal: int = 0, masked: int = 0, drop_prob: float = 0.0, hides: int = 0, zeros: int = 0) -> tuple[_Tensor, ...]:
    """Gradients of q, k and v from those of attention's first result."""

def attention_grad_of_parts(q: object, k: object, v: object, y: object, lse: object, dy: object, /, *more: object, scale: float, causal: int = 0, masked: int = 0, drop_prob: float = 0.0, hides: int = 0, zeros: int = 0, extents: int | Sequence[int], views: int | Sequence[int], outputs: int | Sequence[int]) -> tuple[_Tensor, ...]:
    """attention_grad of parts of tensors. extents and views as of attention_of_parts, for q, k, v, y, dy, dq, dk and dv; outputs: which of the results dq, dk and dv are in, each of one axis, filled by them."""

def attention_of_parts(q: object, k: object, v: object, /, *more: object, scale: float, causal: int = 0, masked: int = 0, drop_prob: float = 0.0, hides: int = 0, zeros: int = 0, extents: int | Sequence[int], views: int | Sequence[int]) -> tuple[_Tensor, ...]:
    """attention of parts of tensors. extents: n, heads, heads of keys, queries, keys, width, width of values. views: for q, k, v and y where each begins, in elements, and the strides of n, heads and length (0 along an extent of 1); along the width elements are neighbours. The first result is one axis, filled by y."""

def avg_pool(x: object, /, *, kernel: int | Sequence[int], stride: int | Sequence[int], padding: int | Sequence[int] = 0, count_include_padding: int = 0) -> _Tensor:
    """Mean of each window of x [n, c, spatial...]; padding counts as zeros if count_include_padding."""

def avg_pool_grad(dy: object, /, *, kernel: int | Sequence[int], stride: int | Sequence[int], padding: int | Sequence[int] = 0, count_include_padding: int = 0, input_shape: int | Sequence[int]) -> _Tensor:
    """Gradient of avg_pool; input_shape has x's spatial extents."""

def batch_norm(x: object, scale: object, bias: object, /, *, eps: float = 1e-05) -> tuple[_Tensor, ...]:
    """(x - mean) / sqrt(var + eps) * scale + bias with the statistics of this batch, over all axes but axis 1. Also returns mean and the biased variance, in float32."""

def batch_norm_grad(x: object, mean: object, var: object, scale: object, dy: object, /, *, eps: float = 1e-05) -> tuple[_Tensor, ...]:
    """Gradients of batch_norm's first result for x, scale and bias."""

def batch_norm_grad_sums(x: object, mean: object, var: object, dy: object, /, *, eps: float = 1e-05) -> tuple[_Tensor, ...]:
    """Gradients of batch_norm's first result for scale and bias, in float32: sums over all axes but axis 1."""

def batch_norm_stats(x: object, /) -> tuple[_Tensor, ...]:
    """Mean and biased variance over all axes but axis 1, in float32."""

def bit_and(x: object, y: object, /) -> _Tensor:
    """x & y."""

def bit_not(x: object, /) -> _Tensor:
    """~x."""

def bit_or(x: object, y: object, /) -> _Tensor:
    """x | y."""

def bit_xor(x: object, y: object, /) -> _Tensor:
    """x ^ y."""

def broadcast_from_root(x: object, /, *after: object, group: str, is_root: int) -> tuple[_Tensor, ...]:
    """The root's x, in each process."""

def broadcast_to(x: object, /, *, shape: int | Sequence[int]) -> _Tensor:
    """Repeats axes of extent 1, and new leading axes, up to `shape`."""

def cast(x: object, /, *, dtype: object) -> _Tensor:
    """x as another dtype: floats to integers towards 0, anything to bool by != 0."""

def ceil(x: object, /) -> _Tensor:
    """Rounds up."""

def celu(x: object, /, *, alpha: float = 1.0) -> _Tensor:
    """x, or alpha * (exp(x / alpha) - 1) where x is negative."""

def checked_index(index: object, /, *, axis: int, extent: int, op: str) -> _Tensor:
    """The index with negative values counted from the end. A value out of range is an IndexError that names axis and op."""

def checked_label(label: object, /, *, classes: int, op: str) -> _Tensor:
    """The labels. One outside of [0, classes) is an IndexError that names it and op."""

def cholesky(x: object, /) -> _Tensor:
    """The lower triangle l with x = l l^T; what is above x's diagonal is not read."""

def complex(real: object, imag: object, /) -> _Tensor:
    """real + i imag."""

def concat(*xs: object, axis: int) -> _Tensor:
    """Joins tensors along one axis."""

def cond(*operands: object, if_true: str, if_false: str) -> _Tensor:
    """One of two graphs of the same operands, behind a bool that selects it."""

def conv(x: object, w: object, /, *, stride: int | Sequence[int] = 1, padding: int | Sequence[int] = 0, dilation: int | Sequence[int] = 1, groups: int = 1) -> _Tensor:
    """Convolution (cross-correlation) of x [n, c, spatial...] with w [oc, c / groups, kernel...]; extents round down."""

def conv_backward_data(dy: object, w: object, /, *, stride: int | Sequence[int] = 1, padding: int | Sequence[int] = 0, dilation: int | Sequence[int] = 1, groups: int = 1, input_shape: int | Sequence[int]) -> _Tensor:
    """Gradient of conv for x: the transposed convolution of dy with w; input_shape has x's spatial extents."""

def conv_backward_data_epilogue(dy: object, w: object, /, *operands: object, stride: int | Sequence[int] = 1, padding: int | Sequence[int] = 0, dilation: int | Sequence[int] = 1, groups: int = 1, input_shape: int | Sequence[int], epilogue: str) -> _Tensor:
    """conv_backward_data, then the steps of `epilogue` (add, mask) on its result."""

def conv_backward_data_sums(dy: object, w: object, /, *operands: object, stride: int | Sequence[int] = 1, padding: int | Sequence[int] = 0, dilation: int | Sequence[int] = 1, groups: int = 1, input_shape: int | Sequence[int], epilogue: str) -> _Tensor:
    """conv_backward_data_epilogue, and sums over all but the channels, float32, [1, channels, 1...]: of its result, and for each pair of a tensor and means, of the result times tensor - means."""

def conv_backward_filter(x: object, dy: object, /, *, stride: int | Sequence[int] = 1, padding: int | Sequence[int] = 0, dilation: int | Sequence[int] = 1, groups: int = 1, kernel: int | Sequence[int]) -> _Tensor:
    """Gradient of conv for w; kernel has the weights' spatial extents."""

def conv_epilogue(x: object, w: object, /, *operands: object, stride: int | Sequence[int] = 1, padding: int | Sequence[int] = 0, dilation: int | Sequence[int] = 1, groups: int = 1, epilogue: str) -> _Tensor:
    """conv, then the steps of `epilogue` (bias, add, relu) on its result."""

def conv_stats(x: object, w: object, /, *, stride: int | Sequence[int] = 1, padding: int | Sequence[int] = 0, dilation: int | Sequence[int] = 1, groups: int = 1) -> _Tensor:
    """conv, and for each channel of its result the sum of the elements and of their squares, in float32, [1, channels, 1...]."""

def coordinates(*, device: str | _core.Tensor | None = None, shape: int | Sequence[int], axis: int) -> _Tensor:
    """int32: each element's place along the axis."""

def copy_to(x: object, /, *, device: str) -> _Tensor:
    """x on another device, by name."""

def cos(x: object, /) -> _Tensor:
    """Cosine; exact to 2 ulp for every finite x."""

def cosh(x: object, /) -> _Tensor:
    """Hyperbolic cosine."""

def cumsum(x: object, /, *, axis: int, exclusive: int = 0, reverse: int = 0) -> _Tensor:
    """Sums of all elements up to each one along an axis (exclusive: without it; reverse: from the end). bool counts in int32."""

def dequantize_blocks(blocks: object, /, *, bits: int) -> _Tensor:
    """The float32 values of weights in blocks of few bits: [..., blocks, bytes] gives [..., blocks * group]."""

def digamma(x: object, /) -> _Tensor:
    """Derivative of lgamma."""

def dropout_mask(key: object, /, *, shape: int | Sequence[int], drop_prob: float) -> _Tensor:
    """0 with probability drop_prob, else 1 / (1 - drop_prob)."""

def eigh(x: object, /) -> tuple[_Tensor, ...]:
    """Rising eigenvalues and eigenvectors, as columns, of symmetric matrices; what is above x's diagonal is not read."""

def elu(x: object, /, *, alpha: float = 1.0) -> _Tensor:
    """x, or alpha * (exp(x) - 1) where x is negative."""

def equal(x: object, y: object, /) -> _Tensor:
    """x == y."""

def erf(x: object, /) -> _Tensor:
    """Error function."""

def erfc(x: object, /) -> _Tensor:
    """1 - erf(x), exact for large x."""

def erfcinv(x: object, /) -> _Tensor:
    """Inverse of erfc."""

def erfinv(x: object, /) -> _Tensor:
    """Inverse of erf."""

def even_abs(x: object, /) -> _Tensor:
    """|x|. The gradient at 0 is 0."""

def even_max(x: object, /, *, axes: int | Sequence[int], keepdims: int = 0) -> _Tensor:
    """Largest element over axes; NaN wins. Equal largest elements share the gradient."""

def even_maximum(x: object, y: object, /) -> _Tensor:
    """The larger one, or NaN. Equal operands share the gradient."""

def even_min(x: object, /, *, axes: int | Sequence[int], keepdims: int = 0) -> _Tensor:
    """Smallest element over axes; NaN wins. Equal smallest elements share the gradient."""

def even_minimum(x: object, y: object, /) -> _Tensor:
    """The smaller one, or NaN. Equal operands share the gradient."""

def exchanged_rows(pivots: object, /) -> _Tensor:
    """int32: the row that comes to each place by the exchanges that lu tells."""

def exp(x: object, /) -> _Tensor:
    """e to the power x."""

def expm1(x: object, /) -> _Tensor:
    """exp(x) - 1, exact near 0."""

def fake_quant(x: object, scale: object, zero_point: object, grad_scale: object, /, *, qmin: int = -128, qmax: int = 127) -> _Tensor:
    """x rounded to scale * (q - zero_point) with q in [qmin, qmax]; grad_scale weights the gradient of scale."""

def fft(x: object, /, *, inverse: int = 0, scale: float = 1.0) -> _Tensor:
    """scale * sum of x[t] exp(-2 pi i k t / n) along the last axis; inverse: exp(+2 pi i k t / n), not divided by n."""

def fixed_batch(x: object, /, *, batch: int, line: str) -> _Tensor:
    """x, whose leading extent stays what it was: the program took it for a number, at `line`."""

def floor(x: object, /) -> _Tensor:
    """Rounds down."""

def floor_div(x: object, y: object, /) -> _Tensor:
    """x / y rounded towards minus infinity; an integer divided by 0 is 0."""

def fma3(a: object, b: object, c: object, /) -> _Tensor:
    """a * b + c, rounded twice."""

def full(*, device: str | _core.Tensor | None = None, shape: int | Sequence[int], value: float, dtype: object = 'float32') -> _Tensor:
    """A tensor of one value."""

def gather(x: object, index: object, /, *, axis: int) -> _Tensor:
    """y[i, j] = x[index[i, j], j] for axis 0, and so on for others."""

def gather_to_root(x: object, /, *after: object, group: str, size: int, is_root: int) -> _Tensor:
    """[size, ...]: each process's x, in the root."""

def gelu(x: object, /) -> _Tensor:
    """x * Phi(x), with the exact normal distribution."""

def greater(x: object, y: object, /) -> _Tensor:
    """x > y."""

def greater_equal(x: object, y: object, /) -> _Tensor:
    """x >= y."""

def grouped_matmul(a: object, b: object, ends: object, /, *, transpose_a: int = 0, transpose_b: int = 0) -> _Tensor:
    """Products of groups, whose ends data gives: group i goes from ends[i - 1] (0 for the first) to ends[i]. With b [groups, k, n] the rows of each group of a [m, k] are multiplied by the group's matrix, and rows behind the last end are 0: [m, n]. With b [k, n] each group of the k terms has a product of its own: [groups, m, n]."""

def gru(gates: object, w_hh: object, h: object, b_hh: object, /, *, reverse: int = 0) -> tuple[_Tensor, ...]:
    """Gated recurrent units over all steps of gates [steps, n, 3 * hidden], in the order reset, update, new; reset scales the new gate's part of h w_hh' + b_hh: h of each step, the gates behind their functions, and what reset scales. reverse = 1: from the last step to the first."""

def gru_grad(activations: object, w_hh: object, h_first: object, y: object, scaled: object, dy: object, /, *, reverse: int = 0) -> tuple[_Tensor, ...]:
    """Gradients of gru's gates, of h w_hh' + b_hh of each step, and of the first h but for its product."""

def gru_reset_first(gates: object, w_hh: object, h: object, b_hh: object, /, *, reverse: int = 0) -> _Tensor:
    """gru whose reset scales h before its product with the new gate's part of w_hh, as ONNX has it by default: h of each step."""

def hsigmoid(x: object, /) -> _Tensor:
    """relu6(x + 3) / 6."""

def hswish(x: object, /) -> _Tensor:
    """x * relu6(x + 3) / 6."""

def identity(x: object, /) -> _Tensor:
    """x."""

def imag(x: object, /) -> _Tensor:
    """Imaginary part of a complex tensor."""

def index_add(x: object, value: object, /, *index: object, axes: int | Sequence[int]) -> _Tensor:
    """x with `value` added at those indices, once for each time an index is repeated, always in the same order."""

def index_get(x: object, /, *index: object, axes: int | Sequence[int]) -> _Tensor:
    """x at index tensors on `axes`, whole along the others, as NumPy's advanced indexing: the axes of the result of indexing stand where the indexed axes stood if these are adjacent, else in front."""

def index_set(x: object, value: object, /, *index: object, axes: int | Sequence[int]) -> _Tensor:
    """x with `value` written at those indices; of several writes to one element the last wins."""

def irfft(x: object, /, *, n: int, twice: int = 1, scale: float = 1.0) -> _Tensor:
    """scale * real part of the sum of x[k] exp(2 pi i k t / n) over frequencies 0 to n / 2; twice: those that have a conjugate counterpart count twice."""

def isfinite(x: object, /) -> _Tensor:
    """Is x neither infinite nor NaN?"""

def isinf(x: object, /) -> _Tensor:
    """Is x infinite?"""

def isnan(x: object, /) -> _Tensor:
    """Is x not a number?"""

def layer_norm(x: object, /, *scale_and_bias: object, axes: int, eps: float = 1e-05, affine: int = 1) -> tuple[_Tensor, ...]:
    """Normalizes over the last `axes` axes, then scales and shifts (x, scale, bias; or x alone with affine = 0). Also returns mean and 1 / sqrt(var + eps), in float32."""

def layer_norm_grad(x: object, mean: object, rstd: object, dy: object, /, *scale: object, axes: int, affine: int = 1) -> tuple[_Tensor, ...]:
    """Gradients of layer_norm's first result for x, and for scale and bias unless affine = 0."""

def leaky_relu(x: object, /, *, negative_slope: float = 0.01) -> _Tensor:
    """x, or negative_slope * x where x is negative."""

def left_leaky_relu(x: object, /, *, negative_slope: float = 0.01) -> _Tensor:
    """x, or negative_slope * x where x is not positive: the slope at 0, too."""

def left_prelu(x: object, slope: object, /) -> _Tensor:
    """x, or slope * x where x is not positive: the slope at 0, too."""

def left_shift(x: object, y: object, /) -> _Tensor:
    """x << y; the count is taken modulo 32."""

def less(x: object, y: object, /) -> _Tensor:
    """x < y."""

def less_equal(x: object, y: object, /) -> _Tensor:
    """x <= y."""

def lgamma(x: object, /) -> _Tensor:
    """Logarithm of the absolute value of the gamma function."""

def log(x: object, /) -> _Tensor:
    """Natural logarithm."""

def log1p(x: object, /) -> _Tensor:
    """log(1 + x), exact near 0."""

def log_softmax(x: object, /, *, axis: int) -> _Tensor:
    """x - log(sum(exp(x))) along one axis, shifted by the largest element."""

def logaddexp(x: object, y: object, /) -> _Tensor:
    """log(exp(x) + exp(y))."""

def logical_and(x: object, y: object, /) -> _Tensor:
    """x and y."""

def logical_not(x: object, /) -> _Tensor:
    """not x."""

def logical_or(x: object, y: object, /) -> _Tensor:
    """x or y."""

def logical_xor(x: object, y: object, /) -> _Tensor:
    """Either x or y."""

def logsigmoid(x: object, /) -> _Tensor:
    """log(sigmoid(x))."""

def lstm(gates: object, w_hh: object, h: object, c: object, /, *, reverse: int = 0, rounded: int = 0) -> tuple[_Tensor, ...]:
    """Long short-term memory over all steps of gates [steps, n, 4 * hidden], in the order input, forget, cell, output: h and c of each step, and the gates behind their functions. reverse = 1: from the last step to the first. rounded = 1: the product with w_hh reads h at the nearest of 256 numbers between the extrema of its elements and 0."""

def lstm_grad(activations: object, w_hh: object, c_first: object, c: object, dy: object, /, *dc: object, reverse: int = 0) -> tuple[_Tensor, ...]:
    """Gradients of lstm's gates and first c from those of h and, unless it is left out, of c of each step."""

def lstm_of_bytes(gates: object, w_hh: object, h: object, c: object, scale: object, /, *, reverse: int = 0) -> _Tensor:
    """lstm with rounded = 1 and w_hh of int8: its product with whole levels of h is a sum in int32, times the level's size and the column's scale, [4 * hidden]. h and c of each step."""

def lu(x: object, /) -> tuple[_Tensor, ...]:
    """The triangles l, with 1 on its diagonal, and u of p x = l u in one matrix, and int32 pivots: row i was exchanged with row pivots[i] - 1, as LAPACK tells it. A pivot of 0 stays in u."""

def mask_select(x: object, mask: object, /) -> tuple[_Tensor, ...]:
    """The elements of x where mask is true, and their int32 indices in row-major order, counted in the flattened tensor."""

def matinv(x: object, /) -> _Tensor:
    """Inverse of each matrix. A singular matrix is an error when the op runs."""

def matmul(a: object, b: object, /, *, transpose_a: int = 0, transpose_b: int = 0) -> _Tensor:
    """Matrix product over the last two axes; leading axes broadcast. float64 accumulates in float64, other floating dtypes in float32; products of int8 are int32, other integers wrap in their own dtype."""

def matmul_epilogue(a: object, b: object, /, *operands: object, transpose_a: int = 0, transpose_b: int = 0, epilogue: str) -> _Tensor:
    """matmul, then the steps of `epilogue` (bias, add, relu) on its result."""

def matmul_of_blocks(x: object, blocks: object, /, *, bits: int, transposed: int = 0) -> _Tensor:
    """x @ w.T of weights w in blocks of few bits, or x @ w if `transposed` is set."""

def matmul_sums(a: object, b: object, /, *, transpose_a: int = 0, transpose_b: int = 0, of: int) -> _Tensor:
    """matmul of two matrices, and the sums of operand `of` over the axis that the product sums over: the gradients of a layer's weights and bias."""

def max_pool(x: object, /, *, kernel: int | Sequence[int], stride: int | Sequence[int], padding: int | Sequence[int] = 0) -> _Tensor:
    """Largest element of each window of x [n, c, spatial...]; a NaN in the window wins."""

def max_pool_grad(x: object, dy: object, /, *, kernel: int | Sequence[int], stride: int | Sequence[int], padding: int | Sequence[int] = 0) -> _Tensor:
    """Gradient of max_pool: adds each dy to the first largest element of its window."""

def max_pool_pick(x: object, v: object, /, *, kernel: int | Sequence[int], stride: int | Sequence[int], padding: int | Sequence[int] = 0) -> _Tensor:
    """The elements of v at the positions that max_pool takes from x: the gradient of max_pool_grad for dy."""

def maximum(x: object, y: object, /) -> _Tensor:
    """The larger one, or NaN."""

def minimum(x: object, y: object, /) -> _Tensor:
    """The smaller one, or NaN."""

def mish(x: object, /) -> _Tensor:
    """x * tanh(softplus(x))."""

def mod(x: object, y: object, /) -> _Tensor:
    """Rest of the division: with the sign of y for integers, of x for floats."""

def mul(x: object, y: object, /) -> _Tensor:
    """x * y."""

def neg(x: object, /) -> _Tensor:
    """-x."""

def nms(boxes: object, scores: object, /, *, iou_thresh: float, max_output: int = 0) -> _Tensor:
    """int32 indices of the boxes (x0, y0, x1, y1) that stay when, by falling score, each box removes those that overlap it by more than iou_thresh. max_output 0: no limit."""

def nms_kept(boxes: object, /, *, iou_thresh: float) -> _Tensor:
    """bool: the boxes (x0, y0, x1, y1) that no box before them overlaps by more than iou_thresh, but for boxes that do not stay themselves."""

def nonzero(mask: object, /) -> _Tensor:
    """int32 coordinates [n, rank] of the true elements, in row-major order."""

def norm_root(x: object, /) -> _Tensor:
    """Square root whose gradient at 0 is 0: norms and deviations of nothing."""

def not_equal(x: object, y: object, /) -> _Tensor:
    """x != y; true for NaN."""

def one_hot(x: object, /, *, num_classes: int, dtype: object = 'int32') -> _Tensor:
    """1 at x along a new last axis of num_classes, else 0. A label outside of [0, num_classes) is an IndexError."""

def pad(x: object, /, *, before: int | Sequence[int], after: int | Sequence[int], mode: str = 'constant', value: float = 0.0) -> _Tensor:
    """Widens every axis: with `value` (constant), the border element (edge), or mirrored without the border (reflect)."""

def pad_grad(dy: object, /, *, before: int | Sequence[int], after: int | Sequence[int], mode: str) -> _Tensor:
    """Adds each padded element to the one that it came from: gradient of pad, modes edge and reflect."""

def pow(x: object, y: object, /) -> _Tensor:
    """x to the power y, as C's pow. Where y is 0 the gradient for x is 0; where x is 0, that for y."""

def prelu(x: object, slope: object, /) -> _Tensor:
    """x, or slope * x where x is negative."""

def qr(x: object, /, *, complete: int = 0) -> tuple[_Tensor, ...]:
    """q with orthonormal columns and the upper triangle r, x = q r; complete: q is square."""

def quantized_conv(x: object, w: object, scale: object, bias: object, /, *, stride: int | Sequence[int] = 1, padding: int | Sequence[int] = 0, dilation: int | Sequence[int] = 1, groups: int = 1, relu: int = 0, dtype: object = 'int8') -> _Tensor:
    """Convolution of int8 x [n, c, spatial...] with int8 w [oc, c / groups, kernel...]: round(acc * scale + bias), saturated."""

def random_beta(key: object, a: object, b: object, /) -> _Tensor:
    """Beta numbers, from two gamma numbers each."""

def random_gamma(key: object, shape: object, scale: object, /) -> _Tensor:
    """Gamma numbers, one for each pair of parameters (Marsaglia and Tsang 2000)."""

def random_multinomial(key: object, weights: object, /, *, num_samples: int, replacement: int = 0) -> _Tensor:
    """int32 indices drawn with probabilities proportional to the weights of a row."""

def random_normal(key: object, /, *, shape: int | Sequence[int]) -> _Tensor:
    """Standard normal numbers (Box and Muller 1958)."""

def random_permutation(key: object, /, *, n: int) -> _Tensor:
    """0...n-1 in random order (Fisher and Yates), int32."""

def random_poisson(key: object, lam: object, /) -> _Tensor:
    """Poisson numbers as float32: inversion below rate 10, else transformed rejection (Hoermann 1993)."""

def random_uniform(key: object, /, *, shape: int | Sequence[int]) -> _Tensor:
    """float32 multiples of 2^-24 in [0, 1)."""

def real(x: object, /) -> _Tensor:
    """Real part of a complex tensor."""

def receive_from(x: object, /, *after: object, group: str, peer: int, shape: int | Sequence[int], dtype: object) -> tuple[_Tensor, ...]:
    """What the process `peer` of the group sends; of x only the gradient's way."""

def reciprocal(x: object, /) -> _Tensor:
    """1 / x."""

def reduce_max(x: object, /, *, axes: int | Sequence[int], keepdims: int = 0) -> _Tensor:
    """Largest element over axes; NaN wins. Each of several equal largest elements receives the whole gradient."""

def reduce_mean(x: object, /, *, axes: int | Sequence[int], keepdims: int = 0) -> _Tensor:
    """Mean over axes: float64 of float64, else float32."""

def reduce_min(x: object, /, *, axes: int | Sequence[int], keepdims: int = 0) -> _Tensor:
    """Smallest element over axes; NaN wins. Each of several equal smallest elements receives the whole gradient."""

def reduce_prod(x: object, /, *, axes: int | Sequence[int], keepdims: int = 0) -> _Tensor:
    """Product over axes; bool counts in int32. The gradient is right where x has zeros."""

def reduce_scatter_sum(x: object, /, *after: object, group: str, size: int) -> tuple[_Tensor, ...]:
    """The sum over the processes of the part of this one."""

def reduce_sum(x: object, /, *, axes: int | Sequence[int], keepdims: int = 0) -> _Tensor:
    """Sum over axes; bool counts in int32, other dtypes stay (integers wrap, float16 adds in float32)."""

def reduce_sum_to_root(x: object, /, *after: object, group: str, is_root: int) -> _Tensor:
    """Sum over the processes, in the root."""

def reduce_variance(x: object, /, *, axes: int | Sequence[int], keepdims: int = 0) -> _Tensor:
    """Mean squared distance from the mean over axes, of float32 or float64."""

def relayout(x: object, /, *, layout: str) -> _Tensor:
    """The same tensor in another order of memory: 'row_major', 'channels_last', or one of the backend's own."""

def relu(x: object, /) -> _Tensor:
    """max(x, 0), or NaN."""

def relu6(x: object, /) -> _Tensor:
    """min(max(x, 0), 6)."""

def reshape(x: object, /, *, shape: int | Sequence[int]) -> _Tensor:
    """The same elements in row-major order under another shape; shares memory."""

def rfft(x: object, /, *, twice: int = 0, scale: float = 1.0) -> _Tensor:
    """fft of real numbers, frequencies 0 to n / 2; twice: those that have a conjugate counterpart are doubled."""

def right_shift(x: object, y: object, /) -> _Tensor:
    """x >> y, arithmetic; the count is taken modulo 32."""

def rnn(gates: object, w_hh: object, h: object, /, *, nonlinearity: str = 'tanh', reverse: int = 0) -> _Tensor:
    """h_t = tanh (or relu) of gates_t + h_{t-1} w_hh', for all steps of gates [steps, n, hidden]. reverse = 1: from the last step to the first."""

def rnn_grad(y: object, w_hh: object, dy: object, /, *, nonlinearity: str = 'tanh', reverse: int = 0) -> _Tensor:
    """Gradient of rnn's gates from that of its result."""

def round(x: object, /) -> _Tensor:
    """Rounds to the nearest, halves away from 0."""

def rsqrt(x: object, /) -> _Tensor:
    """1 / sqrt(x)."""

def scan(*operands: object, body: str, carries: int, slices: int, trips: int, reverse: int = 0, keeps: int = 0) -> _Tensor:
    """(carry, x[i], more) -> (carry, y[i]) for each of `trips` elements; returns the last carry and all y."""

def scatter(x: object, index: object, source: object, /, *, axis: int) -> _Tensor:
    """x with source written at x[index[i, j], j] for axis 0, and so on for others; the last write wins."""

def scatter_add(x: object, index: object, source: object, /, *, axis: int) -> _Tensor:
    """x with source added at x[index[i, j], j] for axis 0, and so on for others, always in the same order."""

def scatter_from_root(x: object, /, *after: object, group: str, size: int, is_root: int) -> tuple[_Tensor, ...]:
    """This process's part of the root's x."""

def scatter_reduce(x: object, index: object, source: object, /, *, axis: int, mode: str) -> _Tensor:
    """x with the largest (mode max), the smallest (min) or the product (prod) of x and all sources that go to x[index[i, j], j] for axis 0, and so on for others. NaN wins, equal extrema share the gradient, and the gradient of a product is right where factors are 0."""

def selu(x: object, /) -> _Tensor:
    """Scaled elu."""

def send_to(x: object, /, *after: object, group: str, peer: int) -> _Tensor:
    """x goes to the process `peer` of the group."""

def shape_of(x: object, /) -> _Tensor:
    """The extents of x, int32."""

def sigmoid(x: object, /) -> _Tensor:
    """1 / (1 + exp(-x))."""

def sign(x: object, /) -> _Tensor:
    """-1, 0 or 1, or NaN."""

def silu(x: object, /) -> _Tensor:
    """x * sigmoid(x)."""

def sin(x: object, /) -> _Tensor:
    """Sine; exact to 2 ulp for every finite x."""

def sinh(x: object, /) -> _Tensor:
    """Hyperbolic sine."""

def slice(x: object, /, *, begin: int | Sequence[int], end: int | Sequence[int], step: int | Sequence[int]) -> _Tensor:
    """x[begin:end:step] on every axis. Bounds are normalised: 0 <= begin < extent, end exclusive and -1 where a negative step runs to the front."""

def slice_set(x: object, value: object, /, *, begin: int | Sequence[int], end: int | Sequence[int], step: int | Sequence[int]) -> _Tensor:
    """x with x[begin:end:step] replaced by value."""

def slogdet(x: object, /) -> tuple[_Tensor, ...]:
    """The sign of the determinant and the logarithm of its magnitude; 0 and -inf for a singular matrix."""

def softmax(x: object, /, *, axis: int) -> _Tensor:
    """exp(x) / sum(exp(x)) along one axis, shifted by the largest element."""

def softplus(x: object, /) -> _Tensor:
    """Smooth ReLU, log(1 + exp(x))."""

def solve(a: object, b: object, /) -> _Tensor:
    """The x with a x = b."""

def solve_triangular(a: object, b: object, /, *, upper: int = 0, unit: int = 0) -> _Tensor:
    """The x with a x = b, where a is a triangle: `upper` or lower, with 1 on its diagonal (unit) or what stands there. The rest of a is not read, and a 0 on the diagonal gives infinities."""

def sort(x: object, /, *, axis: int = -1, descending: int = 0) -> tuple[_Tensor, ...]:
    """Values in order along an axis and their int32 indices; equal elements keep their order, NaN counts as the largest."""

def sqrt(x: object, /) -> _Tensor:
    """Square root."""

def square(x: object, /) -> _Tensor:
    """x * x."""

def stop_gradient(x: object, /) -> _Tensor:
    """x, through which no gradient flows."""

def sub(x: object, y: object, /) -> _Tensor:
    """x - y."""

def svd(x: object, /, *, full_matrices: int = 0) -> tuple[_Tensor, ...]:
    """u, s, vh with x = u diag(s) vh, s falling; full_matrices makes u and vh square."""

def tan(x: object, /) -> _Tensor:
    """Tangent; exact to 2 ulp for every finite x."""

def tanh(x: object, /) -> _Tensor:
    """Hyperbolic tangent."""

def topk(x: object, /, *, k: int, axis: int = -1, descending: int = 0) -> tuple[_Tensor, ...]:
    """The k smallest (descending: largest) elements along an axis in order, and their int32 indices."""

def transpose(x: object, /, *, perm: int | Sequence[int]) -> _Tensor:
    """Axis i of the result is axis perm[i] of x."""

def true_div(x: object, y: object, /) -> _Tensor:
    """x / y."""

def trunc(x: object, /) -> _Tensor:
    """Rounds towards 0."""

def where(mask: object, x: object, y: object, /) -> _Tensor:
    """x where the mask is true, else y."""

def while_loop(*operands: object, condition: str, body: str) -> _Tensor:
    """(carry, more) -> carry while the condition of both is true."""
