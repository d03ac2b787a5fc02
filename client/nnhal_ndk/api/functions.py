"""Table of the functions of the C library: the only source of their declarations.

Each line of `functions.txt` and `extension_functions.txt` has a feature level and a declaration, with the names and
types of Android's documentation. The headers and the C entry points are generated from it, and `nnhal_ndk.functions`
has one function for each line.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

FEATURE_LEVELS = {1: 27, 2: 28, 3: 29, 4: 30, 5: 31, 6: 1000006, 7: 1000007, 8: 1000008}
"""Number of each feature level."""

RUNTIME_FEATURE_LEVEL = FEATURE_LEVELS[8]

_NULL_IF_EMPTY = {
    ("ANeuralNetworksMemoryDesc_setDimensions", "dimensions"),
    ("ANeuralNetworksExecution_startComputeWithDependencies", "dependencies"),
}
"""Arrays that may be NULL if they have no elements."""


@dataclass(frozen=True)
class Parameter:
    """Parameter of a C function: its type and name."""

    type: str
    name: str

    @property
    def is_handle(self) -> bool:
        """True if it is an object of the library."""
        return (
            re.fullmatch(r"(const )?(ANeuralNetworks(?!\w*(Type|Params)\b)\w+|AHardwareBuffer)\*", self.type)
            is not None
        )

    @property
    def is_pointer(self) -> bool:
        """True if it is a pointer of any kind."""
        return self.type.endswith("*")


@dataclass(frozen=True)
class Function:
    """Function of the C library.

    Attributes:
        group: the object that it belongs to.
        level: feature level that introduced it, 1 to 8.
    """

    group: str
    level: int
    result: str
    name: str
    parameters: tuple[Parameter, ...]

    @cached_property
    def declaration(self) -> str:
        """Its declaration in C."""
        parameters = ", ".join(f"{each.type} {each.name}" for each in self.parameters) or "void"
        return f"{self.result} {self.name}({parameters})"

    @property
    def is_free(self) -> bool:
        """True if it frees an object, and so accepts NULL and returns nothing."""
        return self.result == "void"

    def may_be_null(self, parameter: Parameter) -> bool:
        """Return whether a pointer may be NULL, whatever the other arguments are."""
        if self.is_free:
            return True
        return parameter.name == "type" and parameter.is_pointer and self.group == "Execution"

    def may_be_null_if_empty(self, parameter: Parameter) -> bool:
        """Return whether a pointer may be NULL if its length is 0."""
        return parameter.type.endswith("void*") or (self.name, parameter.name) in _NULL_IF_EMPTY


def _parse(table: str) -> tuple[Function, ...]:
    functions = []
    for line in table.strip().splitlines():
        level, declaration = line.strip().split(" ", 1)
        match = re.fullmatch(r"(\w+) (\w+)\((.*)\)", declaration)
        assert match is not None, line
        result, name, parameters = match.groups()
        prefix, _, rest = name.partition("_")
        group = prefix.removeprefix("ANeuralNetworks") or ("Device" if "Device" in rest else "Runtime")
        parsed = (re.fullmatch(r"(.*[ *])(\w+)", each.strip()) for each in parameters.split(",") if each.strip())
        pairs = tuple(Parameter(each[1].strip(), each[2]) for each in parsed if each is not None)
        functions.append(Function(group, int(level), result, name, pairs))
    return tuple(functions)


PUBLIC_FUNCTIONS = _parse(Path(__file__).with_name("functions.txt").read_text())
"""Functions of NeuralNetworks.h, in its order."""

EXTENSION_FUNCTIONS = _parse(Path(__file__).with_name("extension_functions.txt").read_text())
"""Functions of NeuralNetworksExtensions.h, in its order."""

FUNCTIONS = PUBLIC_FUNCTIONS + EXTENSION_FUNCTIONS
"""All functions."""
