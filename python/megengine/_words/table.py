"""The table of our words for names of PyTorch, JAX and MegEngine before 1.0.

A row is ``names: what to write``. A letter before a name stands for the object that is asked for
it: ``x`` a tensor, ``M`` the layers, ``net`` a module, ``init`` the initializers,
``optim`` the optimizers, ``data`` what loads data, ``T`` its transforms, ``mge`` the package; a name without that is a function. ``PATTERNS`` are whole
sentences for names that have no row of their own, by a regular expression.
"""

from __future__ import annotations

ROWS = """
absolute fabs: F.abs
arccosh: F.acosh
arccos: F.acos
arcsin: F.asin
arcsinh: F.asinh
arctan: F.atan
arctan2: F.atan2
arctanh: F.atanh
accuracy: F.topk_accuracy
add_axis unsqueeze: F.expand_dims
add_update: x += y
addmm addmv addbmm baddbmm: F.matmul(a, b) + c
addcmul: c + scale * a * b
addcdiv: c + scale * a / b
addr: c + F.expand_dims(a, 1) * b
ger outer: F.expand_dims(a, 1) * b
inner vdot vecdot: (a * b).sum(-1)
matvec vecmat mv: F.matmul
kron: F.einsum('ij,kl->ikjl', a, b), and reshape
tensordot: F.einsum, as in F.einsum('ijk,jkl->il', a, b)
chain_matmul: a @ b @ c
bmm mm batched_matrix_mul: F.matmul
cdist pdist: F.norm(F.expand_dims(a, -2) - F.expand_dims(b, -3), axis=-1)
dist: F.norm(a - b)
amax nanmax: F.max
amin nanmin: F.min
aminmax: F.min and F.max
ptp: F.max(x, axis) - F.min(x, axis)
max_unpool1d lp_pool1d: F.max_pool1d or F.avg_pool1d
binary_cross_entropy: F.nn.binary_cross_entropy(pred, label, with_logits=False)
binary_cross_entropy_with_logits: F.nn.binary_cross_entropy, whose with_logits is True by default
cross_entropy cross_entropy_with_softmax: F.nn.cross_entropy
linear_cross_entropy: F.nn.cross_entropy(F.linear(x, weight), label)
ctc_loss: F.nn.ctc_loss
l1_loss: F.nn.l1_loss
mse_loss: F.nn.square_loss
nll_loss: F.loss.nll_loss
poisson_nll_loss: F.mean(F.exp(pred) - label * pred)
gaussian_nll_loss: F.mean(F.log(var) + (pred - label) ** 2 / var) / 2
hinge_embedding_loss: F.mean(F.where(label == 1, x, F.relu(margin - x)))
margin_ranking_loss: F.mean(F.relu(margin - label * (a - b)))
multi_margin_loss: F.loss.hinge_loss
multilabel_margin_loss: F.relu of the differences of scores, F.gather for those of the labels
soft_margin_loss: F.mean(F.softplus(-label * x))
multilabel_soft_margin_loss: F.nn.binary_cross_entropy
triplet_margin_with_distance_loss: F.mean(F.relu(distance(a, p) - distance(a, n) + margin))
cat concatenate: F.concat
hstack vstack dstack column_stack row_stack append block: F.concat
atleast_1d atleast_2d atleast_3d: x.reshape
block_diag: F.concat of blocks that F.pad has widened
chunk tensor_split array_split split_with_sizes unsafe_chunk unsafe_split unsafe_split_with_sizes vsplit hsplit dsplit: F.split, whose numbers are places, or a count of parts
unstack: F.unbind
clamp: F.clip
clamp_min: F.maximum
clamp_max: F.minimum
fmax: F.maximum
fmin: F.minimum
clone: F.copy
broadcast_tensors broadcast_arrays expand expand_copy: F.broadcast_to
broadcast_shapes: numpy.broadcast_shapes
dimshuffle permute permute_dims movedim moveaxis rollaxis: F.transpose(x, order)
matrix_transpose: F.swapaxes(x, -1, -2)
swapdims transpose_: F.swapaxes
t adjoint: x.T, or F.swapaxes(x, -1, -2)
divide true_divide: F.div
floor_divide: F.floor_div
divmod: F.floor_div and F.mod
multiply: F.mul
subtract: F.sub
rsub: y - x
negative: F.neg
positive: x itself
reciprocal: 1 / x
rsqrt: 1 / F.sqrt(x)
cbrt: F.sign(x) * F.pow(F.abs(x), 1 / 3)
remainder: F.mod, whose floats take the sign of the dividend: x - F.floor(x / y) * y has the divisor's
fmod: F.mod
float_power power: F.pow
exp2: F.pow(2.0, x)
log2: F.log(x) / math.log(2)
log10: F.log(x) / math.log(10)
logaddexp2: F.logaddexp, with factors math.log(2)
xlogy: F.where(x == 0, 0.0, x * F.log(y))
logit: F.log(x / (1 - x))
expit: F.sigmoid
erfc: 1 - F.erf(x)
fix trunc: F.sign(x) * F.floor(F.abs(x))
frac modf: x - F.sign(x) * F.floor(F.abs(x))
rint around: F.round, whose halves go away from zero
sgn: F.sign
signbit: x < 0
copysign: F.abs(x) * F.where(y < 0, -1.0, 1.0)
heaviside: F.where(x == 0, y, (x > 0).astype('float32'))
hypot: F.sqrt(x * x + y * y)
ldexp: x * F.pow(2.0, y)
deg2rad radians: x * (math.pi / 180)
rad2deg degrees: x * (180 / math.pi)
sinc: F.where(x == 0, 1.0, F.sin(math.pi * x) / (math.pi * x))
eq array_equal array_equiv: F.equal, and F.all of it
ne: F.not_equal
ge: F.greater_equal
gt: F.greater
le: F.less_equal
lt: F.less
isclose allclose: F.abs(x - y) <= atol + rtol * F.abs(y), and F.all of it
isfinite: F.logical_not(F.logical_or(F.isnan(x), F.isinf(x)))
isneginf: x == -float('inf')
isposinf: x == float('inf')
isin: F.any(F.expand_dims(x, -1) == values, axis=-1)
in1d intersect1d setdiff1d setxor1d union1d: numpy's, on x.numpy()
isreal iscomplex isrealobj iscomplexobj is_floating_point is_signed issubdtype isdtype isscalar: x.dtype, which is NumPy's: numpy.issubdtype(x.dtype, numpy.floating)
is_tensor: isinstance(x, megengine.Tensor)
is_nonzero: bool(x)
is_same_size: x.shape == y.shape
can_cast promote_types result_type finfo iinfo: NumPy's; numbers of Python do not widen a tensor
bitwise_left_shift: F.left_shift
bitwise_right_shift: F.right_shift
bitwise_invert invert: F.bitwise_not
gcd lcm bitwise_count: numpy's, on x.numpy()
count_nonzero: (x != 0).sum()
nonzero argwhere nonzero_static flatnonzero: F.non_zero
masked_select extract compress: F.cond_take
masked_fill: F.where(mask, value, x)
masked_scatter place put: x[mask] = values
put_along_axis index_put index_copy: F.scatter, or x[index] = values
index_fill: x[index] = value
index_select take choose select: x[index], or x[:, index] and so on
take_along_axis take_along_dim: F.gather(x, axis, index)
narrow: x[:, start:start + length]
slice_scatter select_scatter diagonal_scatter as_strided_scatter: x[...] = on a copy of x, with the same index
index_reduce segment_reduce: F.index_add for sums; F.scatter_reduce for extrema and products
delete: F.concat of the slices that stay, or x[mask]
insert: F.concat of slices and what comes between
flip fliplr flipud: x[::-1], or x[:, ::-1] and so on
rot90: F.swapaxes(x, 0, 1)[::-1]
trim_zeros piecewise apply_along_axis apply_over_axes vectorize frompyfunc fromfunction: F.where and axes that are written, or numpy's on x.numpy()
repeat_interleave: F.repeat
ravel: F.flatten
unflatten view: F.reshape
resize resize_: F.reshape, or F.pad for more elements
as_strided: F.sliding_window for windows of images, or an index of integers
diagonal diag_embed diagflat: F.diag; for batches x * F.eye(n)
fill_diagonal: F.where(F.eye(n).astype('bool'), value, x)
diag_indices diag_indices_from tril_indices triu_indices tril_indices_from triu_indices_from mask_indices: F.non_zero(F.tril(F.ones((n, m))) != 0) or of F.triu, F.eye
tri: F.tril(F.ones((n, m)))
trace: F.diag(x).sum()
vander: F.expand_dims(x, -1) ** F.arange(n)
unravel_index ravel_multi_index: index // width and index % width
indices mgrid ogrid ix_ cartesian_prod combinations: F.meshgrid(..., indexing='ij') of F.arange
digitize bucketize: F.searchsorted
histc histogram histogram2d histogram_bin_edges histogramdd: F.bincount(F.searchsorted(edges, x))
interp: F.lerp between F.gather of two neighbors, which F.searchsorted finds
unique_consecutive: x[1:][x[1:] != x[:-1]], behind x[:1]
unique_all unique_counts unique_inverse unique_values: F.unique
kthvalue partition: F.sort(x)[0][..., k]
argpartition lexsort: F.argsort
msort: F.sort(x)[0]
median nanmedian: F.sort(x)[0][..., (n - 1) // 2]
quantile percentile nanquantile nanpercentile: F.sort(x)[0], and F.lerp between two of it
mode: F.argmax(F.bincount(x)) for integers
cummax cummin: F.scan with F.maximum or F.minimum
logcumsumexp: F.log(F.cumsum(F.exp(x - m), axis)) + m, with m = F.max(x)
cumulative_sum nancumsum: F.cumsum
cumulative_prod nancumprod: F.cumprod
diff ediff1d: x[1:] - x[:-1]
gradient: (x[2:] - x[:-2]) / 2
trapezoid trapz cumulative_trapezoid: ((y[1:] + y[:-1]) * (x[1:] - x[:-1]) / 2).sum()
nan_to_num: F.where(F.isnan(x), 0.0, x)
nansum nanmean nanprod nanstd nanvar nanargmax nanargmin: the same function of F.where(F.isnan(x), neutral, x)
average: (x * weights).sum() / weights.sum()
std_mean var_mean: F.std or F.var, and F.mean; those here divide by n
cov corrcoef: x - F.mean(x, 1, keepdims=True), and its product with its transpose
renorm: x * F.minimum(1.0, limit / F.norm(x, axis=1, keepdims=True))
frobenius_norm norm_except_dim native_norm: F.norm
nuclear_norm: F.linalg.svdvals(x).sum()
inverse: F.linalg.inv
pinverse: F.linalg.pinv
logdet: F.linalg.slogdet(x)[1]
cholesky_inverse cholesky_solve: F.linalg.solve
eig symeig lobpcg: F.linalg.eigh, for symmetric matrices
triangular_solve lu_solve: F.linalg.solve
matrix_rank: (F.linalg.svdvals(x) > tolerance).sum()
matrix_exp: F.linalg.eigh for symmetric matrices: v @ F.diag(F.exp(w)) @ v.T
pca_lowrank svd_lowrank: F.linalg.svd
stft istft: F.fft.rfft of windows: x[index] with an index of integers
convolve correlate convolution conv_tbc: F.conv1d
avg_pool3d max_pool3d adaptive_avg_pool3d adaptive_max_pool3d max_unpool3d lp_pool3d: F.avg_pool2d or F.max_pool2d over two axes, then over the third
max_unpool2d: F.scatter
lp_pool2d: F.avg_pool2d(x ** p, kernel) and its root
fractional_max_pool2d fractional_max_pool3d: F.max_pool2d
affine_grid affine_grid_generator: F.meshgrid(F.linspace(-1, 1, w), F.linspace(-1, 1, h)), and F.matmul
grid_sample grid_sampler grid_sampler_2d grid_sampler_3d: F.vision.grid_sample
interpolate upsample upsample_bilinear: F.nn.interpolate
upsample_nearest: F.nn.interpolate(x, size, mode='nearest')
nms: F.vision.nms
roi_align: F.nn.roi_align
roi_pooling: F.vision.roi_pooling
channel_shuffle: x.reshape(n, groups, c // groups, h, w), F.swapaxes(x, 1, 2), reshape
constant_pad_nd: F.pad, whose pad_width has a pair for each axis
multi_head_attention_forward: F.scaled_dot_product_attention, M.MultiHeadAttention
softmin: F.softmax(-x, axis)
gumbel_softmax: F.softmax(x - F.log(-F.log(megengine.random.uniform(size=x.shape))), axis)
hardsigmoid: F.hsigmoid
hardswish: F.hswish
hardtanh: F.clip(x, -1, 1)
softsign: x / (1 + F.abs(x))
softshrink: F.sign(x) * F.relu(F.abs(x) - lambd)
hardshrink: F.where(F.abs(x) > lambd, x, 0.0)
tanhshrink: x - F.tanh(x)
threshold: F.where(x > threshold, x, value)
rrelu: F.leaky_relu
dropout1d dropout3d feature_dropout: F.dropout2d, which drops whole channels
alpha_dropout feature_alpha_dropout: F.dropout
lstm gru rnn_relu rnn_tanh: M.LSTM, M.GRU or M.RNN
lstm_cell gru_cell rnn_relu_cell rnn_tanh_cell: M.LSTMCell, M.GRUCell or M.RNNCell
scaled_mm scaled_addmm scaled_addmm_ grouped_mm scaled_grouped_mm: F.matmul, and megengine.quantization.quantize_weights for int8
empty_like: F.zeros_like
empty empty_strided empty_permuted: F.zeros
identity: F.eye
logspace geomspace: base ** F.linspace(start, stop, num)
range: F.arange
scalar_tensor as_tensor asarray array from_numpy frombuffer fromiter fromstring fromfile from_file: megengine.tensor
from_dlpack to_dlpack: megengine.utils.dlpack
astype: x.astype(dtype)
numel: x.size
ndim: x.ndim
shape: x.shape
size: x.size
rand rand_like: megengine.random.uniform
randn randn_like normal: megengine.random.normal
randint randint_like: megengine.random.uniform(low, high, size).astype('int32')
randperm: megengine.random.permutation
multinomial: megengine.random.multinomial
poisson: megengine.random.poisson
bernoulli binomial: megengine.random.uniform(size=x.shape) < x
manual_seed seed initial_seed: megengine.random.seed
Generator default_generator thread_safe_generator: megengine.random.RNG(seed)
fork wait: Python's threads: work on a GPU is queued and goes on by itself
grad: megengine.autodiff.GradManager
zero_grad: the clear_grad() of the optimizer
remove_axis: F.squeeze
top_k: F.topk
einsum_path: F.einsum, which chooses the order itself
bartlett bartlett_window blackman blackman_window hamming hamming_window hanning hann_window kaiser kaiser_window: megengine.tensor(numpy.hanning(n)) and so on
poly polyadd polyder polydiv polyfit polyint polymul polysub roots unwrap sort_complex: numpy's, on x.numpy()
polyval: a sum of powers, or a loop: y = y * x + c
array_repr array_str printoptions get_printoptions set_printoptions: numpy's, on x.numpy()
packbits unpackbits: x // 2 ** F.arange(8, dtype='int32') % 2
save savez: megengine.save
load: megengine.load
s_ index_exp c_ r_: the index itself, as in x[1:, None]
iterable ufunc ndarray: megengine.Tensor
detach: x.detach()
fill: F.full_like
slice: x[start:stop]
is_inference_mode_enabled: nothing: gradients are recorded under a GradManager only
view_as_real: F.real and F.imag
e pi inf nan: math.e, math.pi, math.inf, math.nan
euler_gamma: numpy.euler_gamma
newaxis: None, as in x[:, None]
special: F.erf, F.expm1, F.log1p, F.logsumexp, F.softmax; scipy.special on x.numpy() for the rest
profiler: megengine.utils.profiler
backends: megengine.config
multiprocessing: megengine.distributed.launcher
compiler: megengine.jit
masked nested: F.where with a mask

x.data: x.detach()
x.backward: gm.backward(x) inside 'with gm:', where gm = GradManager().attach(parameters)
x.bool: x.astype('bool')
x.byte: x.astype('uint8')
x.char: x.astype('int8')
x.short: x.astype('int16')
x.int: x.astype('int32')
x.long: x.astype('int64')
x.half: x.astype('float16')
x.bfloat16: x.astype('bfloat16')
x.float: x.astype('float32')
x.double: x.astype('float64'), which products and norms refuse
x.type x.type_as: x.astype(dtype)
x.contiguous x.is_contiguous: x itself: no operation depends on the memory layout
x.stride x.storage_offset x.dim_order: nothing: every tensor is contiguous
x.cpu: x.to('cpu0'), or x.numpy() for an array
x.cuda: x.to('gpu0')
x.pin_memory x.is_pinned x.share_memory_ x.is_shared: nothing: the DataLoader moves arrays through shared memory itself
x.dim x.ndimension: x.ndim
x.expand: F.broadcast_to(x, shape)
x.expand_as: F.broadcast_to(x, y.shape)
x.view: x.reshape(shape), as in x.reshape(2, -1)
x.view_as x.reshape_as: x.reshape(y.shape)
x.permute: x.transpose(order), as in x.transpose(0, 2, 1)
x.repeat: F.tile(x, counts)
x.topk: F.topk(x, k, descending=True)
x.norm: F.norm(x, ord, axis)
x.numel x.nelement: x.size
x.nbytes: x.size * x.dtype.itemsize
x.itemsize x.element_size: x.dtype.itemsize
x.add: x + y
x.sub: x - y
x.mul: x * y
x.div: x / y
x.pow: x ** y
x.matmul: x @ y
x.fill_: x[...] = value
x.zero_: x.reset_zero()
x.copy_ x.set_: x[...] = y
x.index: x[index]
x.normal_: x[...] = megengine.random.normal(mean, std, x.shape)
x.uniform_ x.random_: x[...] = megengine.random.uniform(low, high, x.shape)
x.exponential_: x[...] = megengine.random.exponential(scale, x.shape)
x.cauchy_ x.geometric_ x.log_normal_: x[...] = a function of megengine.random.uniform(size=x.shape)
x.fill_diagonal_: x[F.arange(n, dtype='int32'), F.arange(n, dtype='int32')] = value
x.apply_ x.map_ x.map2_: x[...] = a function of x that F has
x.new x.new_tensor: megengine.tensor(data, dtype=x.dtype)
x.new_empty x.new_empty_strided x.new_zeros: F.zeros(shape, dtype=x.dtype)
x.new_ones: F.ones(shape, dtype=x.dtype)
x.new_full: F.full(shape, value, dtype=x.dtype)
x.requires_grad_: GradManager().attach(x)
x.retain_grad x.retains_grad: GradManager().attach(x) within the block, as soon as x is there
x.detach_: x = x.detach()
x.register_hook x.register_post_accumulate_grad_hook: GradManager().attach(x, callbacks=function)
x.grad_fn x.is_leaf x.output_nr x.grad_dtype: nothing: only the block of a GradManager is recorded, and it keeps no graph for programs
x.resize_as x.resize_as_: x.reshape(y.shape)
x.sum_to_size: x.sum(axis, keepdims=True)
x.H x.mH x.mT: F.swapaxes(x, -1, -2)
x.data_ptr x.const_data_ptr: megengine.utils.dlpack.to_dlpack(x)
x.get_device: x.device
x.module_load: x[...] = y
x.as_subclass x.reinforce x.record_stream: nothing: tensors are of one class, and streams are the runtime's
x.nonzero: F.non_zero(x)
x.clip: F.clip(x, lower, upper)
x.gather: F.gather(x, axis, index)
x.acosh: F.acosh(x)
x.unsqueeze: F.expand_dims(x, axis)
x.squeeze: F.squeeze(x, axis)
x.argmax: F.argmax(x, axis)
x.argmin: F.argmin(x, axis)
x.cumsum: F.cumsum(x, axis)
x.softmax: F.softmax(x, axis)
x.split: F.split(x, count_or_indices, axis)
x.chunk: F.split(x, count, axis)
x.std: F.std(x, axis), which divides by n
x.clamp: F.clip(x, lower, upper)
x.to_padded_tensor: F.pad
x.unfold: F.sliding_window for windows of images, or an index of integers

M.MultiLabelSoftMarginLoss: F.nn.binary_cross_entropy
M.CTCLoss: F.nn.ctc_loss
M.LinearCrossEntropyLoss M.LinearCrossEntropyOptions M.AdaptiveLogSoftmaxWithLoss: F.nn.cross_entropy(layer(x), label)
M.NLLLoss2d: F.loss.nll_loss
M.MultiMarginLoss: F.loss.hinge_loss
M.Softmax2d: M.Softmax(1)
M.ModuleDict M.ParameterDict M.BufferDict: a dict, as an attribute of the module
M.ModuleList M.ParameterList M.Container: a list, as an attribute of the module
M.MultiheadAttention M.attention: M.MultiHeadAttention
M.Parameter M.UninitializedParameter: megengine.Parameter
M.Buffer M.UninitializedBuffer: self.name = tensor: a tensor that is not a Parameter is a buffer
M.InstanceNorm1d M.InstanceNorm2d M.InstanceNorm3d: M.InstanceNorm
M.CrossMapLRN2d: M.LocalResponseNorm
M.DataParallel: megengine.distributed.launcher, a process for each device
M.UpsamplingBilinear2d M.UpsamplingNearest2d: F.nn.interpolate in forward
M.ChannelShuffle: x.reshape and x.transpose in forward
M.RNNBase: M.RNN
M.RNNCellBase: M.RNNCell
M.functional: megengine.functional
M.utils: megengine.optimizer.clip_grad_norm, megengine.optimizer.clip_grad_value
M.parallel: megengine.distributed.launcher, a process for each device
M.grad: megengine.autodiff.GradManager
M.parameter: megengine.Parameter
M.intrinsic M.quantizable: megengine.module.qat, megengine.quantization

init.constant_: M.init.fill_
init.kaiming_normal_: M.init.msra_normal_
init.kaiming_uniform_: M.init.msra_uniform_
init.trunc_normal_: M.init.normal_
init.eye_ init.dirac_ init.orthogonal_ init.sparse_: the parameter's value: weight[...] = array

net.add_module net.register_module: setattr(module, name, child)
net.cpu: megengine.set_default_device('cpu0') before the module is made
net.cuda: megengine.set_default_device('gpu0') before the module is made
net.to: megengine.set_default_device before the module is made
net.half net.float net.double net.bfloat16 net.type: megengine.amp.autocast in the training step
net.register_parameter: self.name = megengine.Parameter(value)
net.requires_grad_: GradManager.attach with the parameters to train
net.get_submodule net.get_parameter net.get_buffer: dict(module.named_modules())[name], or of named_parameters, named_buffers
net.compile: megengine.jit.trace
net.extra_repr: _module_info_string
net.share_memory: nothing: processes of megengine.distributed have modules of their own

distributions.Categorical distributions.OneHotCategorical distributions.Multinomial: megengine.random.multinomial(probs, n, replacement=True) to sample, -F.nn.cross_entropy(logits, x, reduction='none') as log_prob
distributions.Bernoulli distributions.Binomial distributions.Geometric: megengine.random.uniform(size=shape) < probs to sample, -F.nn.binary_cross_entropy(logits, x, reduction='none') as log_prob
distributions.Normal distributions.LogNormal distributions.HalfNormal distributions.MultivariateNormal: mean + std * megengine.random.normal(size=shape) to sample, -0.5 * ((x - mean) / std) ** 2 - F.log(std) - 0.9189385 as log_prob
distributions.Uniform distributions.Gamma distributions.Beta distributions.Poisson distributions.Chi2 distributions.Dirichlet: megengine.random.uniform, gamma, beta or poisson to sample
distributions.Laplace distributions.Cauchy distributions.Gumbel distributions.StudentT distributions.Independent distributions.TransformedDistribution: a subclass of megengine.distributions.Distribution
distributions.kl_divergence distributions.kl: F.nn.kl_div

optim.SparseAdam: optim.Adam, which takes the gradients of M.Embedding(..., sparse=True)
optim.Rprop optim.Adamax optim.NAdam optim.RAdam optim.ASGD optim.LBFGS: optim.Adam, optim.AdamW, optim.RMSprop, optim.Lion; or a subclass of optim.Optimizer
optim.LinearLR optim.ConstantLR optim.PolynomialLR optim.CyclicLR optim.MultiplicativeLR optim.SequentialLR optim.ChainedScheduler: optim.LambdaLR(optimizer, factor), of a function of the epoch
optim.swa_utils: optim.EMA
optim.clip_grad_norm_: optim.clip_grad_norm
optim.clip_grad_value_: optim.clip_grad_value

data.Dataset data.MapDataset: data.dataset.Dataset
data.TensorDataset data.ArrayDataset: data.dataset.ArrayDataset
data.IterableDataset data.StreamDataset: data.dataset.StreamDataset
data.ConcatDataset: data.dataset.ConcatDataset
data.Subset data.random_split data.SubsetRandomSampler: data.dataset.ArrayDataset of slices, or data.from_torch of any object with a length and an index
data.BatchSampler data.DistributedSampler: data.RandomSampler, which makes batches and gives each process its part
data.WeightedRandomSampler: data.ReplacementSampler
data.default_collate: data.Collator

T.ToTensor T.PILToTensor: T.ToMode('CHW'), behind T.Normalize(mean=0.0, std=255.0); mge.tensor makes the batch a tensor
T.ToPILImage T.Lambda T.RandomApply T.RandomChoice T.RandomOrder: a subclass of T.VisionTransform with _apply_image
T.RandomRotation T.RandomAffine T.RandomPerspective T.RandomErasing T.GaussianBlur T.Grayscale T.AutoAugment T.RandAugment T.TrivialAugmentWide T.AugMix: T.TorchTransformCompose with torchvision's

mge.Size: a tuple
mge.compile: megengine.jit.trace
mge.cuda: megengine.device, megengine.is_cuda_available()
mge.nn: megengine.module for layers, megengine.functional for functions
mge.no_grad mge.inference_mode mge.set_grad_enabled mge.is_grad_enabled mge.enable_grad: no block at all: gradients are recorded under a GradManager only
mge.Graph: no block at all: functions compute at once
mge.onnx: import megengine.onnx
mge.optim: megengine.optimizer
mge.autograd: megengine.autodiff
mge.autocast: megengine.amp.autocast
mge.GradScaler: megengine.amp.GradScaler
mge.init: megengine.module.init
mge.vmap: megengine.autodiff.vmap
mge.func: megengine.autodiff.jvp, megengine.autodiff.jacobian, megengine.autodiff.hessian, megengine.autodiff.vmap
mge.export: trace(...).dump
mge.dtype mge.float16 mge.float32 mge.int8 mge.int16 mge.int32 mge.uint8 mge.bool mge.bfloat16: names such as 'float32', or NumPy's dtypes
mge.float64: 'float64', which products and norms refuse
mge.int64 mge.long: 'int64'
mge.device_count: megengine.get_device_count
mge.get_default_dtype mge.set_default_dtype mge.set_default_tensor_type: dtype= where a tensor is made: it is float32 otherwise
mge.get_rng_state: megengine.random.get_state
mge.set_rng_state: megengine.random.set_state
mge.set_num_interop_threads mge.get_num_interop_threads mge.init_num_threads: megengine.set_num_threads
mge.set_float32_matmul_precision mge.get_float32_matmul_precision: megengine.config
mge.OutOfMemoryError: MemoryError
mge.AcceleratorError: RuntimeError
mge.typename: type(x)
mge.get_device: x.device
"""

_LAYERS_OF_FUNCTIONS = "Hardtanh Hardshrink Softshrink Tanhshrink Softsign Softmin Threshold RReLU"
FUNCTION_OF_LAYER = {name: name.lower() for name in _LAYERS_OF_FUNCTIONS.split()} | {
    "GaussianNLLLoss": "gaussian_nll_loss",
    "HingeEmbeddingLoss": "hinge_embedding_loss",
    "MarginRankingLoss": "margin_ranking_loss",
    "MultiLabelMarginLoss": "multilabel_margin_loss",
    "PoissonNLLLoss": "poisson_nll_loss",
    "SoftMarginLoss": "soft_margin_loss",
    "TripletMarginWithDistanceLoss": "triplet_margin_with_distance_loss",
}

NOTHING = "there is no counterpart here: "
PATTERNS = {
    r"(Half|Float|Double|BFloat16|Byte|Char|Short|Int|Long|Bool)Tensor": "use megengine.tensor(data, dtype=...)",
    r"\w*Storage\w*|\w*storage\w*": NOTHING
    + "a tensor's memory has no object of its own; x.numpy(), or megengine.utils.dlpack.to_dlpack(x)",
    r"\w*sparse\w*|(hs|s|ss|sa|ds)p?(add)?mm|hsmm|hspmm|spmm|sspaddmm|saddmm|coalesce|is_coalesced|dense_dim|(c?col|c?crow|row|ccol)_indices(_copy)?|indices(_copy)?|values(_copy)?": NOTHING
    + "tensors are dense; F.embedding, F.index_add and F.scatter_add work on rows, optimizers update the rows that a step used",
    r"\w*complex\w*|c(float|double|half|single)|\w*conj\w*|angle|resolve_neg|is_neg": NOTHING
    + "few functions take complex numbers: F.complex, F.polar, F.real, F.imag and F.fft; write pairs of real tensors",
    r"\w*quant\w*|\w*qparams\w*|q_\w+|qscheme|qu?int\w+|int_repr|fbgemm\w*|per_(channel|tensor)\w*|fused_moving_avg\w*": "use megengine.quantization (quantize_qat, quantize, quantize_weights)",
    r"cudnn_\w+|miopen_\w+|mkldnn_\w+|native_\w+|batch_norm_\w+|\w+_unpack|\w*_with_indices|embedding_renorm_|hash_tensor|windows|layout|strided|is_set_to|(un)?safe_\w+"
    r"|slice_inverse|alias_copy|is_distributed|is_inference|is_vulkan_available|is_storage|resolve_\w+|get_file_path|handle_torch_function|has_torch_function\w*|assert_int_or_pair|boolean_dispatch": NOTHING
    + "it is an internal function of torch; the public function that calls it has a name here",
    r"[Ss]ym_?\w+": NOTHING + "shapes are numbers, or tensors under trace(symbolic_shape=True)",
    r"\w*autocast\w*": "use megengine.amp.autocast",
    r"\w*deterministic\w*": "use megengine.config",
    r"\w*anomaly\w*|set_warn_always|is_warn_always_enabled": NOTHING
    + "hook each module to look for NaN, as docs/errors.md does",
    r"set_flush_denormal|compiled_with_cxx11_abi|get_device_module|prepare_multiprocessing_environment|profiler_allow\w*|import_ir_\w+|parse_\w+|factory_kwargs|merge_type\w*|unify_type_list"
    r"|(Jit|JIT|Script|Lite|Static|Concrete|Deserialization|Serialization|Py(Torch|Object)|Exclude|Dispatch|Disable|Execution|Graph|Func|Script|Compilation|Complete|Benchmark|Throughput|Logger|Locking|Noop|Operator|DeepCopy|Error|File|Fatal|Aggregation|Alias|Call|IOD)\w*"
    r"|\w*Type|Argument\w*|Block|Capsule|Code|Future|Gradient|Node|Tag|Use|Value|TracingState|memory_format|classproperty": NOTHING
    + "it belongs to torch's own compiler or runtime; megengine.jit.trace compiles, megengine.fx has graphs of modules",
    r"Lazy\w+": NOTHING + "layers take the number of input features when they are made",
    r"(Avg|Max|LP|FractionalMax)Pool[13]d|MaxUnpool\dd|LPPool2d|FractionalMaxPool2d|Adaptive(Avg|Max)Pool3d": "use F.max_pool2d or F.avg_pool2d over two axes in forward (F.expand_dims makes one), then over the third",
    r"(Constant|Zero|Reflection|Replication|Circular)Pad\dd": "use M.Pad, whose pad_width has a pair for each axis; F.concat of slices for a circular one",
    r"(Feature|Alpha)*Dropout\d?d?": "use M.Dropout, or M.Dropout2d for whole channels",
    r"is_(cuda|cpu|xpu|ipu|mps|xla|meta|maia|mtia|vulkan|nested|quantized)|xpu|ipu|mtia|cuda": "use x.device, x.to(device)",
    r"digamma|polygamma|lgamma|mvlgamma|i0|igammac?|erfinv|nextafter|spacing|frexp": NOTHING
    + "scipy.special and NumPy have it, on x.numpy(); an autodiff.Function around that has a gradient",
    r"geqrf|orgqr|ormqr|lu|ldl\w*": NOTHING
    + "F.linalg has qr, cholesky, solve, lstsq, svd and eigh",
    r"volatile|requires_grad|isrealobj": "use GradManager().attach(x)",
    r"u?int\d+|float\w*\d\w*|bfloat16|double|half|short|int|uint|bool_|int_|float_|complex_|single|object_|character|flexible|floating|generic|inexact|integer|number|(un)?signedinteger|ComplexWarning": (
        "use names such as 'float32', or NumPy's dtypes"
    ),
    r"BroadcastingList\d|DType|ScalingType|SwizzleType|Optional|Callable|Tensor": NOTHING
    + "it is a name that torch's own source imports",
}

# Keywords -> our keywords; SPECIAL and OF_ALL tell what to do if another word is not enough.
ARGUMENTS = {
    "dim": "axis", "dims": "axis", "keepdim": "keepdims", "input": "inp", "a": "inp", "x": "inp", "self": "inp", "tensors": "inps", "arrays": "inps",
    "p": "drop_prob", "target": "label", "labels": "label", "label_smoothing": "label_smooth", "largest": "descending", "stable": "descending",
    "size": "shape", "shape": "size", "fill_value": "value", "end": "stop", "steps": "num", "min": "lower", "max": "upper", "a_min": "lower", "a_max": "upper",
    "start_dim": "start_axis", "end_dim": "end_axis", "split_size_or_sections": "nsplits_or_sections", "indices_or_sections": "nsplits_or_sections",
    "condition": "mask", "pred": "condition", "other": "y", "elementwise_affine": "affine", "shifts": "shift", "in_features": "in_features",
    "dropout": "attn_dropout", "kernel": "kernel_size", "learning_rate": "lr", "momentum_decay": "momentum", "num_features": "num_features", "src": "source",
    "right": "side", "return_inverse": "return_inverse", "axes": "pattern", "permutation": "pattern", "value": "constant_value", "constant_values": "constant_value",
}  # fmt: skip
_NOWHERE = "leave it out: "
SPECIAL = {
    "DataLoader": {
        "batch_size": "sampler=RandomSampler(dataset, batch_size), or SequentialSampler for the order of the dataset",
        "shuffle": "sampler=RandomSampler(dataset, batch_size), or SequentialSampler for the order of the dataset",
        "drop_last": "drop_last belongs to the sampler",
        "collate_fn": "DataLoader calls it collator",
        "batch_sampler": "DataLoader calls it sampler",
        "pin_memory": _NOWHERE + "preload=True copies the next batch while a step runs",
        "worker_init_fn": _NOWHERE + "workers are seeded by megengine.random.seed",
        "prefetch_factor": _NOWHERE + "workers go on as long as their queues have room",
        "persistent_workers": _NOWHERE + "workers live as long as the iterator",
    },
    "norm": {"p": "norm calls it ord"},
    "normalize": {"p": "normalize calls it ord"},
    "gelu": {
        "approximate": _NOWHERE
        + "gelu is the exact one; 0.5 * x * (1 + F.tanh(0.79788456 * (x + 0.044715 * x**3))) is the approximation"
    },
    "sum": {"dtype": "x.astype(dtype) before it"},
    "var": {
        "unbiased": _NOWHERE + "var divides by n",
        "correction": _NOWHERE + "var divides by n",
        "ddof": _NOWHERE + "var divides by n",
    },
    "std": {
        "unbiased": _NOWHERE + "std divides by n",
        "correction": _NOWHERE + "std divides by n",
        "ddof": _NOWHERE + "std divides by n",
    },
    "topk": {
        "sorted": _NOWHERE + "the elements are sorted",
        "axis": "it takes the last axis: F.swapaxes before it",
    },
    "argsort": {"axis": "it takes the last axis: F.swapaxes before it"},
}
OF_ALL = {
    "requires_grad": _NOWHERE + "GradManager().attach(x) says which tensors have gradients",
    "inplace": _NOWHERE + "the planner decides what is computed in place",
    "out": _NOWHERE + "write y[...] = the result",
    "amsgrad": _NOWHERE + "no optimizer here has it; Adam, AdamW and LAMB are without",
    "fused": _NOWHERE + "a traced step is fused",
    "foreach": _NOWHERE + "a traced step is fused",
    "capturable": _NOWHERE + "a traced step is captured",
    "maximize": _NOWHERE + "call backward of -loss",
    "dampening": _NOWHERE + "megengine.optimizer.SGD is without: the same as dampening=0",
    "approximate": _NOWHERE + "gelu is the exact one",
    "batch_first": "axes in the order (time, batch, features) for recurrent layers: F.swapaxes(x, 0, 1)",
    "size_average": "reduction='mean' or 'sum'",
    "reduce": "reduction='mean' or 'sum'",
    "pin_memory": _NOWHERE + "the DataLoader's preload=True does it",
    "non_blocking": _NOWHERE + "copies to a GPU are queued",
    "memory_format": _NOWHERE + "the planner chooses layouts",
    "antialias": _NOWHERE + "no interpolation here has it: F.avg_pool2d first",
    "pos_weight": "weight= of the rows: (F.nn.binary_cross_entropy(x, y, reduction='none') * weight).mean()",
    "layout": _NOWHERE + "tensors are dense",
    "generator": "megengine.random.RNG(seed), whose methods draw",
    "map_location": _NOWHERE + "set_default_device before",
    "weights_only": _NOWHERE + "megengine.load admits data only",
    "mode": "opt_level of trace", "fullgraph": _NOWHERE + "a trace is one program", "dynamic": "symbolic_shape=True",
}  # fmt: skip

# Names of torch's tensors without a row of their own: functions that F has by the same name, and names of PATTERNS.
TENSOR = """
abs acos angle argmax argmin argsort asin asinh atan atan2 atanh bincount bitwise_and bitwise_not bitwise_or bitwise_xor broadcast_to ccol_indices
cdouble ceil cfloat chalf cholesky coalesce col_indices conj conj_physical cos cosh cross crow_indices cumprod cumsum dense_dim dequantize det diag
digamma dot equal erf erfinv exp expm1 floor frexp geqrf greater greater_equal hash_tensor i0 igamma igammac imag index_add int_repr ipu is_coalesced
is_complex is_conj is_cpu is_cuda is_distributed is_inference is_ipu is_maia is_meta is_mps is_mtia is_neg is_nested is_quantized is_set_to is_sparse
is_sparse_csr is_vulkan is_xla is_xpu isinf isnan layout lerp less less_equal lgamma log log1p log_softmax logaddexp logical_and logical_not logical_or
logical_xor logsumexp lstsq lu matrix_power maximum minimum mtia mvlgamma narrow_copy neg nextafter not_equal orgqr ormqr polygamma prelu
q_per_channel_axis q_per_channel_scales q_per_channel_zero_points q_scale q_zero_point qr qscheme real relu resize_as_sparse resolve_conj resolve_neg
roll round row_indices scatter scatter_add scatter_reduce sigmoid sign sin sinh slice_inverse slogdet smm softmax solve sort sparse_dim sparse_mask sparse_resize
sparse_resize_and_clear split sqrt square squeeze sspaddmm std storage storage_type svd swapaxes tan tanh tile to_sparse to_sparse_bsc to_sparse_bsr
to_sparse_coo to_sparse_csc to_sparse_csr tril triu unbind unique untyped_storage values volatile where xpu
"""
