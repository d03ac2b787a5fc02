"""nnhal_delegate: delegate of LiteRT and TensorFlow Lite, `libnnhal_delegate.so`, on top of the client of nnhal.

A LiteRT program loads the library as a delegate. The library (`native/`) reads LiteRT's graph, and calls the functions
of this package in the interpreter of its process, as `libneuralnetworks.so` does. `docs/delegate.md` describes it for
users.

Attributes:
    functions: the functions that the library calls.
    options: the options of the delegate.
    parameters: options of operators in LiteRT's structures.
    graph: LiteRT's graph in the form of the importer of .tflite files.
    selection: choice of the nodes that the device runs.
    kernel: nodes that run as one model on the device.
"""
