"""``trace.dump``: a recorded function as a file that runs without Python code.

In: a record made with ``capture_as_const=True``. Out: a container (jit/file/graph_file.h) with graph, constants,
names and metadata. ``megengine.utils.comp_graph_tools.GraphInference`` runs it.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import IO, Any, NamedTuple, ParamSpec

from .. import _core
from .._files.disk import written_whole
from ..core._telling import no_effect
from ..core.scopes import lookups, note_name, recording
from ..tensor import Tensor
from . import metadata
from .cases import make_cases
from .caught import noting_caught_errors
from .parts import Part
from .places import tensor_places

_P = ParamSpec("_P")


class DumpInfo(NamedTuple):
    """Facts about a dumped file: numbers of operators and bytes, a hash, and names."""

    nr_opr: int
    tot_bytes: int
    tensor_value_bytes: int
    content_hash: int
    inputs: list[str]
    outputs: list[str]
    params: list[str]


FORMATS = (None, "FBS", "FBS_V2")

# Layouts and fusions of other devices: the CPU program chooses its own when the model is loaded.
LAYOUT_OPTIONS = frozenset({
    "enable_ioc16", "enable_hwcd4", "enable_nchw4", "enable_nchw88", "enable_nchw44", "enable_nchw44_dot",
    "enable_nchw32", "enable_nchw64", "enable_chwn4", "enable_nchw", "enable_nhwc", "enable_fuse_conv_bias_nonlinearity",
    "enable_fuse_conv_bias_with_z", "enable_fuse_preprocess", "enable_fuse_grain", "enable_weight_preprocess",
})  # fmt: skip
PRECISION_OPTIONS = frozenset({"enable_io16xc32"})


def checked_options(options: Mapping[str, Any]) -> dict[str, bool]:
    """The ``enable_*`` options as bools. ValueError for an unknown one."""
    known = LAYOUT_OPTIONS | PRECISION_OPTIONS
    unknown = sorted(set(options) - known)
    if unknown:
        raise ValueError(
            f"dump: unknown options {', '.join(unknown)}\n  fix: valid are {', '.join(sorted(known))}"
        )
    layouts = {name: value for name, value in options.items() if name in LAYOUT_OPTIONS}
    no_effect("dump", "programs choose layouts when they are loaded", **layouts)
    return {name: bool(value) for name, value in options.items()}


def checked_keeping(keep_var_name: int, dump_format: str | None) -> None:
    """Raises ValueError for a value that dump does not know."""
    if dump_format not in FORMATS:
        raise ValueError(f"dump: dump_format must be None, 'FBS' or 'FBS_V2', got {dump_format!r}")
    if keep_var_name not in (0, 1, 2):
        raise ValueError(f"dump: keep_var_name must be 0, 1 or 2, got {keep_var_name!r}")


class Results:
    """The form of a recorded body's result, for dump: the number of tensors, and the keys of a
    mapping.
    """

    def __init__(self, value: Any):
        self.keys: list[str] | None = None
        self.fault = ""
        self.tensors: list[Tensor] = []
        if isinstance(value, Mapping):
            self.keys = sorted(value)
            items = [value[key] for key in self.keys]
        elif isinstance(value, Tensor):
            items = [value]
        elif isinstance(value, (list, tuple)):
            items = list(value)
        else:
            items = [] if value is None else [value]
        for item in items:
            if not isinstance(item, Tensor):
                self.fault = type(item).__name__
        if not self.fault:
            self.tensors = items
        self.count = len(items)

    def names(self, given: str | Iterable[str] | None, may_be_none: bool = False) -> list[str]:
        """Returns the names of the outputs, or [] to take those of their operators. may_be_none:
        whether it may have no results, as it updates its state.
        """
        if self.fault:
            raise TypeError(
                f"dump: the function returns a {self.fault}\n"
                "  why: results of a dumped function are a Tensor, a flat sequence of Tensors, or a dict of them"
            )
        if not self.count and not may_be_none:
            raise ValueError(
                "the traced function without return values cannot be dumped, the traced function should return "
                "List[Tensor] or Dict[str, Tensor]"
            )
        if self.keys is not None:
            if given is not None:
                raise TypeError(
                    "dump: output_names was given, but the function returns a mapping, whose keys are the names"
                )
            return [str(key) for key in self.keys]
        if given is None:
            return []
        given = [given] if isinstance(given, str) else list(given)
        if len(given) != self.count:
            raise ValueError(f"wrong number of output_names, should be {self.count} values\n  why: dump got {len(given)}")
        return given


def input_names(recorded: list[tuple[str, str]], given: str | Iterable[str] | None) -> list[str]:
    """``recorded``: keyword (or "") and own name of each input; ``given``: arg_names for the positional ones."""
    positional = sum(not keyword for keyword, _ in recorded)
    if given is not None:
        given = [given] if isinstance(given, str) else list(given)
        if len(given) != positional:
            raise ValueError(f"wrong number of arg_names, should be {positional} values\n  why: dump got {len(given)}")
    names = []
    for index, (keyword, own) in enumerate(recorded):
        names.append(keyword or (given[index] if given is not None else own or f"arg_{index}"))
    if len(set(names)) != len(names):
        raise ValueError(
            f"dump: two inputs have one name: {', '.join(names)}\n  fix: give arg_names"
        )
    return names


def metadata_bytes(
    user_info: object, options: Mapping[str, bool], optimized: bool, modified: bool = False
) -> bytes:
    """Returns the metadata of the container; metadata_of reads it."""
    entries = {
        "user_info": user_info,
        "graph_modified": modified,
        "optimized_for_inference": optimized,
    }
    entries.update({name: True for name, value in options.items() if value})
    if optimized:
        entries["enable_fuse_grain"] = True
    return metadata.metadata_bytes(entries)


def write_model(
    file: str | os.PathLike[str] | IO[bytes], data: bytes, append: bool = False
) -> None:
    """Writes ``data`` to a path at once, by renaming, or to an open binary file.

    append: whether to put ``data`` behind what the path holds. Raises OSError.
    """
    before = b""
    if append and isinstance(file, (str, os.PathLike)) and os.path.exists(file):
        with open(file, "rb") as old:
            before = old.read()
    with written_whole(file) as stream:
        stream.write(before + data)


def save_model(
    model: _core.Model,
    file: str | os.PathLike[str] | IO[bytes],
    append: bool,
    strip_info_file: str | None,
    append_json: bool,
    states: _core.FileStates | None = None,
) -> DumpInfo:
    """Writes a model; returns what dump tells of it."""
    data = _core.ModelFile.of([model], states).to_bytes()
    write_model(file, data, append)
    content_hash = _core.checksum(data)
    if strip_info_file is not None:
        write_strip_info(strip_info_file, model, content_hash, append_json)
    return info_of(model, data, content_hash)


def info_of(model: _core.Model, data: bytes, content_hash: int) -> DumpInfo:
    """Returns the facts about a function of the file ``data``."""
    return DumpInfo(
        model.node_count,
        len(data),
        model.constant_bytes,
        content_hash,
        model.inputs,
        model.outputs,
        model.params,
    )


def write_strip_info(path: str, model: _core.Model, content_hash: int, append: bool) -> None:
    """JSON about the operators and dtypes that the model uses, so that a runtime can leave out the rest."""
    row = {
        "hash": content_hash,
        "dtypes": sorted(model.dtypes),
        "opr_types": sorted(model.op_types),
    }
    rows: Any = row
    if append:
        rows = []
        if os.path.exists(path):
            with open(path, encoding="utf-8") as stream:
                held = json.load(stream)
            rows = held if isinstance(held, list) else [held]
        rows.append(row)
    write_model(path, json.dumps(rows, indent=1).encode())


class Dumping(Part[_P]):
    """The base of ``trace`` that notes names and results while recording, and writes the graph."""

    _results: Results | None = None  # the results of the last recording
    _other_result: int | None = None  # a result that was another value in a later call than in the last recording
    _recorded_inputs: list[tuple[str, str]] = []  # keyword (or "") and own name
    _lookups: list[tuple[Callable[[], object], object]] = []  # core.scopes.lookups

    def _named_body(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the body and notes parameters with their names; in a recording for dump, modules
        too.
        """
        outside = recording.set(True)
        try:
            for name, value in self._outside_tensors():
                note_name(value, value.name or name)
            return self._body(*args, **kwargs)
        finally:
            recording.reset(outside)

    def _body_for_dump(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the body and notes its inputs and results."""
        places: Callable[[], dict[str, Tensor]] = lambda: dict(self._outside_tensors())  # noqa: E731
        if _core.is_recording():
            places = functools.partial(tensor_places, self.__wrapped__, kwargs)
        before = [(place, tensor, tensor._value_id()) for place, tensor in places().items()]
        found: list[tuple[Callable[[], object], object]] = []
        outside = lookups.set(found)
        try:
            with noting_caught_errors() if _core.is_recording() else contextlib.nullcontext():
                value = self.__wrapped__(*args, **kwargs)
        finally:
            lookups.reset(outside)
        if _core.is_recording():
            fresh: list[Any] = []
            is_kept = not isinstance(value, Tensor) and sys.getrefcount(value) > sys.getrefcount(fresh)
            self._lookups = found
            self._results = Results(value)
            self._other_result = None
            _core.note_results(self._results.tensors, is_kept)
            now = places()
            for place, tensor, value_id in before:
                if now.get(place) is not tensor:
                    _core.note_bound_anew(value_id, now.get(place), place)
            self._recorded_inputs = [("", tensor.name) for tensor in args]
            self._recorded_inputs += [
                (key, "") for key, tensor in kwargs.items() if isinstance(tensor, Tensor)
            ]
        elif (other := _core.other_result(Results(value).tensors)) is not None:
            self._other_result = other
        return value

    def _outside_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Tensors that the function refers to by global names and closure cells."""
        function: Any = getattr(self.__wrapped__, "__func__", self.__wrapped__)
        code = getattr(function, "__code__", None)
        if code is None:
            return
        for name in code.co_names:
            if isinstance(function.__globals__.get(name), Tensor):
                yield name, function.__globals__[name]
        for name, cell in zip(code.co_freevars, function.__closure__ or ()):
            with contextlib.suppress(ValueError):  # an empty cell
                if isinstance(cell.cell_contents, Tensor):
                    yield name, cell.cell_contents

    def dump(
        self,
        file: str | os.PathLike[str] | IO[bytes],
        *,
        arg_names: str | Iterable[str] | None = None,
        output_names: str | Iterable[str] | None = None,
        append: bool = False,
        keep_var_name: int = 1,
        keep_opr_name: bool = False,
        keep_param_name: bool = False,
        keep_opr_priority: bool = False,
        no_change_graph: bool = False,
        strip_info_file: str | None = None,
        append_json: bool = False,
        optimize_for_inference: bool = True,
        user_info: object = None,
        enable_metadata: bool = True,
        input_data: object = None,
        repeat: int = 1,
        silent: bool = False,
        no_assert: bool = False,
        maxerr: float = 0.0001,
        resize_input: bool = False,
        input_transform: Callable[..., Any] | None = None,
        dump_format: str | None = None,
        model_version: int = 2,
        compat_older_version: str | None = None,
        **kwargs: bool,
    ) -> DumpInfo:
        """Writes the last record to a file, which C, C++ and `GraphInference` run without Python
        code.

        What the function updates in each call (parameters, buffers, states of an optimizer, random
        generators), and its learning rate, is written as state, with the value that it has now: see
        `jit.dump_functions`. All else from outside is a constant.

        Parameters
        ----------
        file : str, PathLike or IO
            A path, or an object with ``write``.
        arg_names, output_names : str, iterable of str or None
            Names of the positional inputs and of the results; None takes the names of the tensors,
            and "arg_0" and so on.
        append : bool
            Whether to write behind what the path holds.
        keep_var_name : int
            Which variables keep their names: 0 none, 1 the outputs, 2 all.
        keep_opr_name : bool
            Whether to write names of operators.
        keep_param_name : bool
            Whether to write names of parameters; they are written in any case.
        keep_opr_priority : bool
            Has no effect, and warns so.
        no_change_graph : bool
            Whether to leave the graph as recorded.
        strip_info_file : str or None
            Path of a file that gets JSON about operators and dtypes; None writes none.
        append_json : bool
            Whether that JSON becomes one more entry of a list in the file.
        optimize_for_inference : bool
            Whether to run whole-graph passes. Functions that update their state are written as
            recorded.
        user_info : object
            Numbers, text, arrays and containers of them, which the metadata keeps.
        enable_metadata : bool
            Whether to write metadata.
        input_data : object
            Test cases, one or a list: an array, a path of an image or a ``.npy`` file, ``"#rand(lo,
            hi[, shape...])"``, ``"name:value;name:value"`` for several inputs, or ``"@file"`` with
            one case a line. None writes none.
        repeat : int
            Number of times that each case is written.
        silent : bool
            Whether to leave the number of cases out of the log.
        no_assert : bool
            Whether to leave out the outputs that a runtime must reproduce.
        maxerr : float
            Largest error that a runtime may make.
        resize_input : bool
            Whether to resize images to the shape of the input.
        input_transform : callable or None
            Function that is applied to each image, as an array.
        dump_format : str or None
            Has no effect, and warns so: None, "FBS" or "FBS_V2".
        model_version : int
            Has no effect, and warns so.
        compat_older_version : str or None
            Has no effect, and warns so.
        **kwargs : bool
            ``enable_io16xc32=True`` stores values between operators as float16. Other ``enable_*``
            options choose layouts of other devices, and warn that they have no effect.

        Returns
        -------
        DumpInfo
            Numbers of operators and bytes, a hash, and the names of inputs, outputs and parameters.

        Raises
        ------
        RuntimeError
            For a batch normalization in training mode without gradients, for an argument that is
            updated in place, and for operations on the elements that a condition selects, unless
            they treat each row by itself.
        ValueError
            Before the first call, without ``capture_as_const``, for a function without results, a
            wrong number of names, or an unknown option.
        TypeError
            For output_names of a function that returns a mapping.
        """
        checked_keeping(keep_var_name, dump_format)
        no_effect(
            "dump",
            "the file has its own format",
            keep_opr_priority=keep_opr_priority,
            model_version=model_version != 2,
            compat_older_version=compat_older_version,
            dump_format=dump_format,
        )
        self._version_to_dump()
        options = checked_options(kwargs)
        optimize = optimize_for_inference and not no_change_graph
        states = _core.FileStates([self._function])
        model = self._exported(
            states,
            arg_names,
            output_names,
            optimize,
            options.get("enable_io16xc32", False),
            keep_var_name,
            bool(keep_opr_name),
        )
        if enable_metadata:
            model.metadata = metadata_bytes(user_info, options, optimize)
        if input_data is not None:
            model.cases = make_cases(
                _core.ModelFile.of([model], states),
                input_data,
                repeat,
                not no_assert,
                maxerr,
                resize_input,
                input_transform,
                silent,
            )
        return save_model(model, file, append, strip_info_file, append_json, states)

    def _exported(
        self,
        states: _core.FileStates,
        arg_names: str | Iterable[str] | None,
        output_names: str | Iterable[str] | None,
        optimize: bool = True,
        half_storage: bool = False,
        keep_var_name: int = 1,
        keep_opr_name: bool = False,
    ) -> _core.Model:
        """Returns the last recording as a function of a file with these states."""
        version = self._version_to_dump()
        model = version.export_model(
            input_names(self._recorded_inputs, arg_names),
            self._results.names(output_names, version.updates_states),  # type: ignore[union-attr]  # as the version, checked
            optimize,
            half_storage,
            keep_var_name,
            keep_opr_name,
            opt_level=self._opt_level,
            exact=self._exact,
            states=states,
        )
        if "BatchNorm" in model.op_types and not version.takes_gradients:
            raise RuntimeError(
                "dump: the function normalizes by the statistics of each batch, as in training, and takes no gradients\n"
                "  why: its results would hang on what else is in the batch\n"
                "  fix: call eval() of the module, and the traced function once more, before dump"
            )
        return model

    def _version_to_dump(self) -> _core.Version:
        if not self._capture_as_const:
            raise ValueError(
                "you must specify capture_as_const=True at __init__ to use dump\n"
                "  why: without it the parameters of the function are inputs\n"
                "  fix: trace(..., capture_as_const=True), and call it once"
            )
        if self._results is None or self._function.recorded is None:
            raise ValueError(
                "dump: the function has not been called\n  fix: call it once, with inputs of the wanted shapes"
            )
        if self._other_result is not None:
            raise RuntimeError(
                f"dump: the function returned another value as result {self._other_result} than when it was recorded\n"
                "  why: a file would return the recorded one in each run\n"
                "  fix: pass what varies as an argument, or return the same value in each call"
            )
        if any(look() is not found for look, found in self._lookups):
            raise RuntimeError(
                "dump: the function counts the steps of parameters together that another function has counted apart since\n"
                "  why: the file would go on with the count of all\n"
                "  fix: run each function once as it is, record all of them again, and then dump"
            )
        return self._function.recorded
