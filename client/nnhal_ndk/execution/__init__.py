"""Compilations, memories, executions and events of the program."""
