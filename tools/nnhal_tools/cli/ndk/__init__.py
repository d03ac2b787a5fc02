"""Commands for the C libraries: `libneuralnetworks.so` and `libnnhal_delegate.so`."""
