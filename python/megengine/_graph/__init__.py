"""Graphs of calls at the level of modules: what `megengine.fx` and `megengine.traced_module` stand on.

A `Graph` is an ordered list of `Call`s. A call's ``args`` and ``kwargs`` are trees that hold `Value`s
of earlier calls; every value knows its ``users``, and edits keep them right. A call that makes one value
may be that value itself (fx: ``class Node(Call, Value)``); a call with several results, or a graph inside
a call, keeps them in ``outputs`` (traced_module: ``Expr(Call)`` and ``Node(Value)``).
Knows no tensor, no module and nothing about tracing.
"""
