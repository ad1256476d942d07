"""Benchmarks: what each measures is in its own docstring, what it measured in RESULTS.md."""
