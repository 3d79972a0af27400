"""Answers questions about a profile: the times of operators, summed, sorted, or by type.

>>> seconds = TimeFuncHelper.eval_time_func("device", "end", max)
>>> profile = {"graph_exec": {"operator": {"0": {"id": "0", "name": "c", "type": "Conv", "input": [], "output": []}}, "var": {}},
...            "profiler": {"device": {"0": {"cpu0": {"start": 1.0, "kern": 1.0, "end": 3.0}}}, "host": {}}}
>>> ProfileAnalyzer(profile).select(seconds, sort_by="time")[0].time
2.0
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

__all__ = ["NonExistNum", "OprProfRst", "ProfileAnalyzer", "Record", "TimeFuncHelper"]

_TimeFunction = Callable[["OprProfRst"], Any]


class NonExistNum:
    """Stands for a missing number: sums leave it out, and it is greater than every number."""

    def __truediv__(self, _: Any) -> NonExistNum:
        return self

    __rtruediv__ = __truediv__

    def __add__(self, rhs: Any) -> Any:
        return rhs

    def __radd__(self, lhs: Any) -> Any:
        return lhs

    def __neg__(self) -> NonExistNum:
        return self

    def __gt__(self, rhs: Any) -> bool:
        return not isinstance(rhs, NonExistNum)

    def __ge__(self, rhs: Any) -> bool:
        return True

    def __lt__(self, rhs: Any) -> bool:
        return False

    def __le__(self, rhs: Any) -> bool:
        return isinstance(rhs, NonExistNum)

    def __eq__(self, rhs: object) -> bool:
        return isinstance(rhs, NonExistNum)

    __hash__ = None  # type: ignore[assignment]  # as any mutable-looking number of a table

    def __format__(self, spec: str) -> str:
        return "N/A"

    def __repr__(self) -> str:
        return "N/A"


class OprProfRst:
    """Holds what a profile says of one operator.

    Parameters
    ----------
    entry : dict of str
        Its row in ``graph_exec``.

    Notes
    -----
    Attributes: opr_info, name, type and id; time_dict, "host" and "device" -> one dict of start,
    kern and end for each thread or stream; footprint, computation, memory, in_shapes and
    out_shapes.
    """

    opr_info: Any = None
    time_dict: Any = None
    footprint: Any = None

    def __init__(self, entry: dict[str, Any]) -> None:
        self.opr_info = collections.OrderedDict((key, entry[key]) for key in ("name", "type", "id"))
        self.time_dict = collections.defaultdict(list)
        self.footprint = collections.defaultdict(NonExistNum)

    def update_device_prof_info(self, dev_time: dict[str, Any]) -> None:
        """Adds the times of one stream.

        Parameters
        ----------
        dev_time : dict of str
            Times start, kern and end, in seconds.
        """
        self.time_dict["device"].append(dict(dev_time))

    def update_host_prof_info(self, host_time: dict[str, Any]) -> None:
        """Adds the times of one thread.

        Parameters
        ----------
        host_time : dict of str
            Times start, kern and end, in seconds.
        """
        self.time_dict["host"].append(dict(host_time))

    def update_footprint(self, footprint: dict[str, Any]) -> None:
        """Adds what the operator computes and moves.

        Parameters
        ----------
        footprint : dict of str
            Its row in ``opr_footprint``.
        """
        self.footprint.update(footprint)


class Record:
    """One row of an answer: time, info, and footprint with the rates that follow from both.

    Parameters
    ----------
    time : float
        Time of the operator, in seconds.
    info, footprint : dict of str
        The profile's facts about the operator, and its numbers of computed and moved bytes.
    """

    __slot__ = [
        "time", "info", "computation", "memory", "in_shapes", "in_layouts", "out_shapes", "flops", "bandwidth", "opr_id",
    ]  # fmt: skip

    def __init__(self, time: float, info: dict[str, Any], footprint: dict[str, Any]) -> None:
        if not isinstance(footprint, dict):
            raise AssertionError(f"footprint is {footprint!r}, not a dict")
        self.time: Any = time
        self.info = collections.OrderedDict(info)
        known = {name: footprint.get(name) for name in ("computation", "memory")}
        self.computation, self.memory = (NonExistNum() if v is None else v for v in known.values())
        self.in_shapes = footprint.get("in_shapes")
        self.in_layouts = footprint.get("in_layouts")
        self.out_shapes = footprint.get("out_shapes")
        self.flops = self.computation / self.time
        self.bandwidth = self.memory / self.time
        number = self.info.get("id")
        self.opr_id = int(number) if isinstance(number, str) and number.isdigit() else number

    def get_column_by_name(self, name: str | None = None) -> Any:
        """Returns one of its columns; None is time.

        Parameters
        ----------
        name : str or None
            Name of the column; None is ``time``.

        Returns
        -------
        object
            Value of the column.
        """
        return self.time if name is None else getattr(self, name)


class ProfileAnalyzer:
    """Analyzes a profile with the parts ``graph_exec`` (operator, var) and ``profiler`` (device,
    host, opr_footprint).

    Parameters
    ----------
    obj : dict of str
        Profile as ``json`` reads it.
    opr_filter : callable
        Function of operator, inputs and outputs, as ``graph_exec`` has them; returns whether the
        operator counts.
    """

    def __init__(
        self, obj: dict[str, Any], opr_filter: Callable[..., bool] = lambda opr, inp, out: True
    ) -> None:
        graph, profile = obj["graph_exec"], obj["profiler"]
        variables = graph["var"]
        self._oprs: dict[str, OprProfRst] = {}
        for number, opr in graph["operator"].items():
            inputs, outputs = ([variables[v] for v in opr[side]] for side in ("input", "output"))
            if opr_filter(opr, inputs, outputs):
                self._oprs[number] = OprProfRst(opr)
        for number, result in self._oprs.items():
            for times in profile.get("device", {}).get(number, {}).values():
                result.update_device_prof_info(times)
            for times in profile.get("host", {}).get(number, {}).values():
                result.update_host_prof_info(times)
            result.update_footprint(profile.get("opr_footprint", {}).get(number, {}))

    def select(
        self,
        time_func: _TimeFunction,
        opr_filter: Callable[[OprProfRst], bool] = lambda opr: True,
        aggregate: str | Callable[[list[Any]], Any] | None = None,
        aggregate_by: str | None = None,
        sort_by: str | None = None,
        top_k: int = 0,
    ) -> list[Record]:
        """Selects the operators that have a time.

        Parameters
        ----------
        time_func : callable
            Function that returns the time of an operator, see `TimeFuncHelper`.
        opr_filter : callable
            Function of operator, inputs and outputs, as ``graph_exec`` has them; returns whether
            the operator counts.
        aggregate : str, callable or None
            How values are joined, of all records or of those with equal info ``aggregate_by``: a
            function of a list, or the name of a function of NumPy.
        aggregate_by : str or None
            A name in ``info``, None for all.
        sort_by : str or None
            Column by which records are sorted, the largest first; with "+" in front the smallest
            first.
        top_k : int
            Most records that are returned; 0 returns all.

        Returns
        -------
        list of Record
            The rows.
        """
        timed = [(opr, time_func(opr)) for opr in self._oprs.values() if opr_filter(opr)]
        records = [Record(time, opr.opr_info, opr.footprint) for opr, time in timed if time]
        if aggregate is not None:
            records = _aggregated(records, aggregate, aggregate_by)
        if sort_by is not None:
            ascending = sort_by.startswith("+")
            column = sort_by.removeprefix("+")
            records.sort(key=lambda record: record.get_column_by_name(column), reverse=not ascending)
        return records[:top_k] if top_k else records


def _aggregated(
    records: list[Record], how: str | Callable[[list[Any]], Any], by: str | None
) -> list[Record]:
    join = getattr(np, how) if isinstance(how, str) else how
    groups: dict[Any, list[Record]] = {}
    for record in records:
        groups.setdefault("all" if by is None else record.info[by], []).append(record)

    def joined(rows: list[Record], column: str) -> Any:
        values = [v for row in rows if not isinstance(v := row.get_column_by_name(column), NonExistNum)]
        return join(values) if values else None

    return [
        Record(
            joined(rows, "time"),
            {by or "type": key, "count": len(rows), "id": "N/A"},
            {column: joined(rows, column) for column in ("computation", "memory")},
        )
        for key, rows in groups.items()
    ]


class TimeFuncHelper:
    """Makes functions for `ProfileAnalyzer.select`.

    The functions return None if a profile says nothing of an operator.
    """

    @staticmethod
    def _times(
        prof_type: str, func: Callable[[list[float]], Any], value: Callable[[Any], float], opr: OprProfRst
    ) -> Any:
        rows: Iterable[Any] = opr.time_dict.get(prof_type, ())
        values = [value(times) for times in rows]
        return func(values) if values else None

    @staticmethod
    def eval_time_func(prof_type: str, end_key: str, func: Callable[[list[float]], Any]) -> _TimeFunction:
        """Makes a function that returns the time from the start to ``end_key``.

        Parameters
        ----------
        prof_type : str
            Whose times are read: "host" or "device".
        end_key : str
            "kern" (the kernel begins) or "end".
        func : callable
            Joins the values of all threads or streams.

        Returns
        -------
        callable
            Takes an operator; gives its time in seconds, or None.
        """
        return partial(TimeFuncHelper._times, prof_type, func, lambda t: t[end_key] - t["start"])

    @staticmethod
    def min_start_func(prof_type: str, end_key: str, func: Callable[[list[float]], Any]) -> _TimeFunction:
        """Makes a function that returns the earliest start; ``end_key`` and ``func`` have no
        effect.

        Parameters
        ----------
        prof_type : str
            Whose times are read: "host" or "device".
        end_key : str
            "kern" (the kernel begins) or "end".
        func : callable
            Joins the values of all threads or streams.

        Returns
        -------
        callable
            Takes an operator; gives its time in seconds, or None.
        """
        del end_key, func
        return partial(TimeFuncHelper._times, prof_type, min, lambda t: t["start"])

    @staticmethod
    def max_end_func(prof_type: str, end_key: str, func: Callable[[list[float]], Any]) -> _TimeFunction:
        """Makes a function that returns the latest ``end_key``; ``func`` has no effect.

        Parameters
        ----------
        prof_type : str
            Whose times are read: "host" or "device".
        end_key : str
            "kern" (the kernel begins) or "end".
        func : callable
            Joins the values of all threads or streams.

        Returns
        -------
        callable
            Takes an operator; gives its time in seconds, or None.
        """
        del func
        return partial(TimeFuncHelper._times, prof_type, max, lambda t: t[end_key])
