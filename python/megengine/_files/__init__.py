"""Files of models that hold data and no code, and what reading any file may build.

`container` reads and writes the bytes (safetensors), `admitted` says which functions and classes a file may name,
`values` turns arguments and attributes into JSON, `modules` a tree of modules. `graphs` holds what calls in a graph
may do. The forms of graphs are given by `megengine.fx` and `megengine.traced_module`. `unpickler` reads pickles.
docs/files.md describes the format.
"""
