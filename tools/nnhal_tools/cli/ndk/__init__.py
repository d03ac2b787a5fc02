"""Commands for `libneuralnetworks.so`, the C library of NNAPI."""
