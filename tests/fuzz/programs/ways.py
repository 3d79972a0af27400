"""Ways to run the functions of a program: each takes a function and gives one to call in its place.

They stand alone, for a printed program has their source: they name nothing of this package.
"""

import inspect
import io
import re
from collections import Counter

import megengine as mge
from megengine import device
from megengine.jit import dump_functions, trace
from megengine.utils.comp_graph_tools import GraphInference
from megengine.utils.network import Network


class Refused(Exception):
    """What is allowed: nothing was computed, and the reason stands in the message."""


def eager(function):
    return function


def traced(**options):
    return lambda function: trace(function, **options)


def leaves(value):
    if isinstance(value, (list, tuple, dict)):
        return [leaf for item in (value.values() if isinstance(value, dict) else value) for leaf in leaves(item)]
    return [value]


def as_returned(found, shapes):
    """A file has [1] for what was 0-d, and no numbers."""
    found = iter(found)
    return [1.5 if shape is None else next(found).reshape(()) if shape == () else next(found) for shape in shapes]


class Loaded:
    """Dumped with all functions of the program, loaded, and run from the file; its states are then the program's, too."""

    def __init__(self, function, together, **options):
        self.function, self.together, self.options, self.model = function, together, options, None
        together.append(self)

    def dump(self):
        """All functions go to one file, and one that gives the state. Each is recorded with the arguments of a first call."""
        scope, functions = self.function.__globals__, {}
        for each in self.together:
            f, bound = trace(each.function, record_only=True, **each.options), dict(scope)
            try:
                results = f(*[mge.tensor(scope["arguments"](3, 0)[name]) for name in inspect.signature(each.function).parameters])
            except Exception:
                if each is self:
                    raise
                scope.update(bound)  # what it wrote and bound before the error goes; it raises again when it is called
                scope["restore"]()
                continue
            functions[each.function.__name__] = f
            each.shapes = [getattr(leaf, "shape", None) for leaf in leaves(results)]
        if scope["watched"]():
            functions["watched"] = trace(lambda: [t * 1 for t in scope["watched"]()], record_only=True)
            functions["watched"]()
        file = io.BytesIO()
        try:
            told = dump_functions(file, functions)
        except (RuntimeError, ValueError, TypeError) as error:
            raise Refused(f"dump: {error}") from error
        first = GraphInference(io.BytesIO(file.getvalue()), function=self.function.__name__)
        for each in self.together:
            name = each.function.__name__
            if name not in functions:
                continue
            each.inputs, each.model = told[name].inputs, first if each is self else first.function(name)
            each.states = first.function("watched") if "watched" in functions else None

    def __call__(self, *args):
        if self.model is None:
            self.dump()
        names = list(inspect.signature(self.function).parameters)
        found = self.model.run(inp_dict={n: a.numpy() for n, a in zip(names, args) if n in self.inputs})
        if self.states:
            for tensor, value in zip(self.function.__globals__["watched"](), self.states.run().values()):
                tensor[...] = value.reshape(tensor.shape)
        return as_returned(found.values(), self.shapes)


class OtherBatch:
    """Recorded and dumped with the rows of the first call; for another number of rows the file is given another batch."""

    def __init__(self, function, **options):
        self.function, self.options, self.file = function, options, None

    def __call__(self, *args):
        names = list(inspect.signature(self.function).parameters)
        if self.file is None:
            f = trace(self.function, symbolic=True, capture_as_const=True, **self.options)
            self.shapes = [getattr(leaf, "shape", None) for leaf in leaves(f(*args))]
            self.rows, self.file = [a.shape[0] if a.ndim else None for a in args], io.BytesIO()
            try:
                self.inputs = f.dump(self.file, arg_names=names).inputs
            except (RuntimeError, ValueError, TypeError) as error:
                self.file = None
                raise Refused(f"dump: {error}") from error
        file, inputs = io.BytesIO(self.file.getvalue()), self.inputs
        rows = {a.shape[0] for a, n in zip(args, names) if n in ("x", "whole", "byte", "mask")}
        if rows and [a.shape[0] if a.ndim else None for a in args] != self.rows:
            try:
                net = Network.load(file)
                net.reset_batch_size(*rows, blacklist=[v for v in net.input_vars if v.name not in ("x", "whole", "byte", "mask")])
            except (ValueError, AssertionError, RuntimeError) as error:
                raise Refused(f"reset_batch_size: {error}") from error
            file = io.BytesIO()
            net.dump(file)
            file.seek(0)
            inputs = [v.name for v in net.input_vars]
        found = GraphInference(file).run(inp_dict={n: a.numpy() for n, a in zip(names, args) if n in inputs})
        return as_returned(found.values(), self.shapes)


class Exported:
    """Written as ONNX for the shapes of a call, and loaded back, or run by onnxruntime; where that is not installed, by the reference of ONNX."""

    def __init__(self, function, back):
        self.function, self.back, self.known = function, back, {}

    def export(self, args, names):
        import megengine.onnx

        results = leaves(self.function(*args))
        shapes = [leaf.shape if isinstance(leaf, mge.Tensor) else None for leaf in results]
        self.wide = [i for i, leaf in enumerate(results) if getattr(leaf, "dtype", None) == "float64"]
        try:
            proto = megengine.onnx.export(self.function, args, input_names=names)
        except (megengine.onnx.OnnxError, RuntimeError, TypeError) as error:
            raise Refused(f"export: {error}") from error
        return megengine.onnx.load(proto) if self.back else self.session(proto), shapes

    def session(self, proto):
        try:
            import onnxruntime
        except ImportError:
            from onnx.reference import ReferenceEvaluator

            return ReferenceEvaluator(proto)
        onnxruntime.set_default_logger_severity(4)
        try:
            return onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
        except Exception as error:
            if "NOT_IMPLEMENTED" in str(error):
                raise Refused(f"onnxruntime: {error}") from error
            raise

    def __call__(self, *args):
        names = list(inspect.signature(self.function).parameters)
        key = tuple(a.shape for a in args)
        if key not in self.known:
            self.known[key] = self.export(args, names)
        model, shapes = self.known[key]
        if self.back:
            found = model(*args)
            # What the file has in float64 is computed in float32.
            arrays = [t.numpy() for t in (found if isinstance(found, (tuple, list)) else [found])]
            return as_returned([a.astype("float64") if t in self.wide else a for t, a in enumerate(arrays)], shapes)
        try:
            return as_returned(model.run(None, {n: a.numpy() for n, a in zip(names, args)}), shapes)
        except RuntimeError as error:
            if "corresponding Numpy type" in str(error):  # it gives no bfloat16
                raise Refused(f"onnxruntime: {error}") from error
            raise


class AtItsLimit:
    """Traced once for each shape of the arguments, with the least memory that the refusal of a smaller limit names; never beyond it."""

    def __init__(self, function, **options):
        self.function, self.options, self.known = function, options, {}

    def __call__(self, *args):
        shapes = tuple(a.shape for a in args)
        limit, f = self.known.get(shapes) or (1, trace(self.function, memory_limit=1, **self.options))
        refusals = Counter()  # by the lines that they name: each part of a body between two selections is planned by itself
        most = 3  # the part before a selection may name the same line, and the second call may have states that the first one makes
        while True:
            drawn = mge.random.get_state()
            before = device.get_allocated_memory()
            device.reset_max_memory_stats()
            try:
                found = f(*args)
            except MemoryError as error:
                line = str(error).rpartition("at:")[2]
                refusals[line] += 1
                if "as much as the data selects" in str(error):
                    most = 8  # what a call selects is known when it selects it, and the parts behind it stand on that
                if refusals[line] > most:
                    raise
                mge.random.set_state(drawn)
                limit = int(re.search(r"at least (\d+) bytes", str(error)).group(1))
                f = trace(self.function, memory_limit=limit, **self.options)
                self.known[shapes] = limit, f
                continue
            beside = device.get_max_allocated_memory() - before
            if beside > limit:
                raise AssertionError(f"the call took {beside} bytes beside what was there, and its limit is {limit}")
            return found
