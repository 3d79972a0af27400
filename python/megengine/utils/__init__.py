"""Helpers around the core: statistics, profiling, graph surgery, small tools. One module each."""
