"""PyTorch's NNAPI backend, unmodified, with the library: compared with its eager mode.

`programs` has scripts for the Python of an environment with PyTorch, which `environment` installs.
"""
