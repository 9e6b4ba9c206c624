"""The benchmark of lowbit on a GPU: python -m bench, from the root of the repository. docs/benchmark.md says what it measures and how."""
