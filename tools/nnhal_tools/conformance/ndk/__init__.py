"""Vectors through the NNAPI C library, `libneuralnetworks.so`.

Attributes:
    model, execution: a vector's model and executions, built with the functions of the library.
    trial: all executions of a vector.
"""
