"""Random programs: one grammar, many judges. `python -m programs --help`, in tests/fuzz."""
