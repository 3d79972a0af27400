"""What a loaded network lists, names and lets itself be told."""

import io

import numpy as np

import megengine.module as M
from megengine import Tensor
from megengine.jit import trace
from megengine.utils.network import Network

A, B = np.float32([1, 2]), np.float32([3, 4])


def loaded(function, *arrays, **options):
    traced = trace(function, symbolic=True, capture_as_const=True)
    traced(*map(Tensor, arrays))
    file = io.BytesIO()
    traced.dump(file, **{"optimize_for_inference": False, **options})
    file.seek(0)
    return Network.load(file)


def ask_numbers_among_the_parameters():
    net = loaded(lambda a, b: (a + b) * 2, A, B)
    found = net.params_filter.as_list()
    return [opr.type for opr in found], [float(opr.numpy()) for opr in found]


def ask_names_of_parameters():
    return sorted(opr.name for opr in loaded(M.Conv2d(1, 2, 3), np.zeros((1, 1, 4, 4), "float32")).params_filter)


def ask_metadata_of_optimized_graphs():
    net = loaded(lambda a: a + 1, A, optimize_for_inference=True)
    return sorted(net.metadata.items())


def ask_dependencies():
    net = loaded(lambda a, b: a + b, A, B)
    before = len(net.all_oprs)
    var = net.input_vars[0] * 3
    given = net.add_dep_oprs(var)
    return type(given).__name__, given[0] is var, len(net.all_oprs) - before
