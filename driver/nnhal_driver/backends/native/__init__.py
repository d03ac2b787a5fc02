"""Native backends: shared objects with the C interface of `nnhal_backend.h`. `abi` is that header in ctypes."""
