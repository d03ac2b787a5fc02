"""nnhal_ndk: Android's NNAPI C library for Linux programs, `libneuralnetworks.so`, on top of the client of nnhal.

A program loads the library by its name and calls its C functions. The library (`native/`) checks pointers, starts or
joins the interpreter of its process, and calls the functions of this package, which keep the objects of the program and
use devices of nnhal. `docs/ndk.md` describes it for users.

Attributes:
    api: the tables of functions and constants, and the C code that is generated from them.
    functions: one function for each function of the C library.
    model, execution: models, compilations, memories and executions.
    devices: devices of the configured services.
"""
