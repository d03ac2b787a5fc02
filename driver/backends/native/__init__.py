"""Native backends: shared objects that meet the C interface of `nnhal_backend.h`. `abi` is that header in ctypes."""
