"""Random sequences of calls of the C library, compared with a model of its documented states.

Attributes:
    states: the model: objects of a program with their states, and the result codes that calls must have.
    machine: the calls, as rules of hypothesis.
    program: runs sequences in a process of its own.
"""
