import numpy as np

import megengine.module as M
from megengine import Tensor
from megengine.utils import bn_fusion, module_stats


def numbers(*shape):
    return Tensor((np.arange(np.prod(shape)) % 7 / 7).astype("float32").reshape(shape))


class Net(M.Module):
    def __init__(self):
        super().__init__()
        self.conv = M.Conv2d(3, 8, 3, padding=1)
        self.bn = M.BatchNorm2d(8)
        self.relu = M.ReLU()
        self.depthwise = M.Conv2d(8, 8, 3, groups=8, bias=False, stride=2)
        self.up = M.ConvTranspose2d(8, 4, 3, 2, groups=2)
        self.pool = M.MaxPool2d((2, 3), 2, 1)
        self.mean = M.AvgPool2d(2, 2)
        self.adaptive = M.AdaptiveAvgPool2d((2, 3))
        self.norms = [M.GroupNorm(2, 4), M.InstanceNorm(4)]
        self.fused = M.ConvBnRelu2d(4, 4, 1)
        self.line = M.Conv1d(4, 6, 3)
        self.local = M.LocalConv2d(4, 2, 3, 3, 2)
        self.fc = M.Linear(24, 5)

    def forward(self, x):
        x = self.relu(self.bn(self.conv(x)))
        x = self.mean(self.up(self.depthwise(self.pool(x))))
        for norm in self.norms:
            x = norm(x)
        x = self.fused(x)
        y = self.local(x[:, :, :3, :3])
        x = self.adaptive(x)
        return self.fc(x.reshape(x.shape[0], -1)), self.line(x.reshape(-1, 4, 6)), y


def stats(model, **options):
    model.apply(lambda module: [param._reset(numbers(*param.shape)) for param in module.parameters(recursive=False)])
    total, details = module_stats.module_stats(model, logging_to_stdout=False, **options)
    return total._asdict(), details._asdict()


def ask_totals_of_a_network():
    return stats(Net(), input_shapes=[(2, 3, 17, 16)])[0]


def ask_rows_of_a_network():
    rows = stats(Net(), input_shapes=[(2, 3, 17, 16)])[1]
    return [[{**row, "flops_num": int(row.get("flops_num", 0))} for row in part] for part in rows.values()]


def ask_given_inputs_have_statistics():
    return stats(M.Linear(3, 4), inputs=[np.ones((2, 3), "float32")])[1]


def ask_one_shape_need_not_be_in_a_list():
    return stats(M.Linear(3, 4), input_shapes=(5, 3), bar_length_max=7)


def ask_nothing_summed():
    return stats(M.Linear(3, 4), input_shapes=(5, 3), cal_params=False, cal_flops=False, cal_activations=False)


def ask_arguments_may_be_dicts():
    class Picks(M.Module):
        def __init__(self):
            super().__init__()
            self.fc = M.Linear(3, 4)

        def forward(self, x):
            return self.fc(x["a"])

    return stats(Picks(), inputs=[{"a": np.ones((2, 3), "float32")}])[0]


def ask_sizes_in_words():
    return [module_stats.sizeof_fmt(*case) for case in ((123456.0,), (1e30, "X"), (12, ""), (-5e3,), (9858, "OPs"))]


def ask_tables():
    return module_stats.dict2table([{"a": 1, "b": "x"}, {"b": 2}], ["a", "b"])


def ask_types_of_fused_layers():
    conv, bn, relu = M.Conv2d(4, 6, 3), M.BatchNorm2d(6), M.ReLU()
    linear, norm = M.Linear(4, 6), M.BatchNorm1d(6)
    up = M.ConvTranspose2d(4, 6, 3)
    fused = []
    for training in (True, False):
        for module in (conv, bn, linear, norm, up):
            module.train(training)
        fuse, line = bn_fusion.fuse_conv_bn_relu_module, bn_fusion.fuse_linear_bn_relu_module
        fused += [fuse(layer, b, r) for layer in (conv, up) for b, r in ((bn, None), (bn, relu), (None, relu))]
        fused += [line(linear, norm, None), line(linear, norm, relu), line(linear, None, relu)]
    return [(type(module).__name__, module.training) for module in fused]


def ask_folded_weights():
    terms = [numbers(1, 6, 1, 1) + i for i in range(5)]
    shapes = ((6, 4, 2, 2), False), ((2, 3, 2, 2, 2), False), ((4, 6, 2, 2), True), ((2, 2, 3, 2, 2), True)
    return [bn_fusion.fold_weight_bias(numbers(*shape), *terms, 1e-3, tr) for shape, tr in shapes]


def ask_folded_weights_of_a_linear_layer():
    return bn_fusion.fold_weight_bias(numbers(6, 4), None, *(numbers(6) + i for i in range(4)))
