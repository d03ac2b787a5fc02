"""The corpus: generated `.tflite` models of one operator, run by LiteRT and by nnhal, with the results compared.

`families` has the generators: one function yields the models of one operator or of several similar ones. `cases`
names and collects them, `run` runs them in child processes, `worker` is the program of such a process, `compare` has
the tolerances, and `exceptions` lists what is left out and known differences.

    python -m tests.nnhal.tflite.corpus            # a table of all operators
    python -m tests.nnhal.tflite.corpus ADD MUL    # the models of some operators, one line each
"""
