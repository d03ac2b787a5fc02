"""Text of docs/operation-arguments.md: arguments, types, ranks and constraints of every operation.

Argument lists, types, ranks and checks come from the signatures in `nnhal.operations`. Constraints on values come from
the messages of the shape rules in `nnhal_driver.operations`.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

from nnhal.operations import SIGNATURES
from nnhal.operations.signature import Argument, ArgumentList, Check, Rank, Signature
from nnhal.types import ErrorStatus, OperandType, OperationType
from nnhal_driver import operations
from nnhal_driver.operations import SHAPE_RULES
from nnhal_driver.operations.call import OperationCall
from tools.dev.error_message import message_template
from tools.dev.markdown import Documents, code, escape, paragraph, table

FOLDER = Path("operation-arguments")
ROOMS = {
    "elementwise": "Elementwise operations",
    "layers": "Layers",
    "arrays": "Array operations",
    "control-flow": "Control flow",
}
"""Title of each document, by its name."""

HEAD = """\
# Operation arguments

The inputs, outputs, types and constraints of the operations, from the tables that the service
itself checks. [Operations](operations.md) lists the backends that support each operation.

## How to read an entry

- The number of an input is its position in `Operation.inputs`. An operation with more than one
  form, such as explicit and implicit padding, takes the inputs of one of them.
- "May be left out" means that the list of inputs may end before this input. A later input needs all
  earlier ones.
- "Optional" means that the input must be in the list, but may have no value: lifetime NO_VALUE in
  the model, or `has_no_value` in a request.
- A type such as T is a column of the table of types. Each row of that table is one allowed
  combination. Other combinations are INVALID_ARGUMENT with rule V-OPERATION-04.
- An empty cell for the rank means that the preparation does not check the rank. A tensor of unknown
  rank passes each check of a rank.
- "Checked when prepared" lists further constraints of V-OPERATION-04.
- "Checked when executed" lists the messages of errors with rule V-RUN-03, whose status is
  GENERAL_FAILURE. A part in braces is replaced by a value. An input without a value that is not
  optional breaks V-RUN-01.

## Arguments of many operations

| Argument | Meaning |
| --- | --- |
| `activation` | 0: none, 1: RELU, 2: RELU1, 3: RELU6, after the operation itself |
| `padding_scheme` | 1: SAME, 2: VALID |
| `layout` | false or left out: images are NHWC; true: NCHW |
| `stride_width`, `stride_height` | steps of the window, at least 1 |
| `dilation_width`, `dilation_height` | steps between the cells of the window; 1 if left out |
| `axis` | -rank to rank - 1; a negative number counts from the last dimension |

## Operations

"""

CONTROL_FLOW = """\
# Control flow

IF and WHILE run subgraphs, which are inputs of type SUBGRAPH with lifetime SUBGRAPH. The rules
V-OPERATION-06 to V-OPERATION-13 in [Rules](../rules.md) apply to them.

## IF

Operation 96. Runs the then branch if the condition is true, otherwise the else branch.

| Input | Name | Type | Rank |
| --- | --- | --- | --- |
| 0 | condition | TENSOR_BOOL8 with dimensions [1] | 1 |
| 1 | then branch | SUBGRAPH | |
| 2 | else branch | SUBGRAPH | |
| 3, ... | inputs of the branch | any; each like the input of both branches | |

There is at least one output. Both branches have as many inputs as the operation has after the
branches, and as many outputs as the operation. Types, quantization and known dimensions match.

## WHILE

Operation 97. Runs the body as long as the condition yields true. The deadline of the execution and
`loop_timeout_duration_ns` end it.

| Input | Name | Type | Rank |
| --- | --- | --- | --- |
| 0 | condition | SUBGRAPH with one output: TENSOR_BOOL8 with dimensions [1] | |
| 1 | body | SUBGRAPH | |
| 2, ... | initial values | any; each like the input of both subgraphs | |

The first outputs of the body replace the first values before the next iteration. Further values do
not change. The outputs of the operation are the first outputs of the body.
"""

_ARGUMENT_READERS = {"integer", "number", "flag"}
_CHECKING_READERS = {f"{owner}.{name}" for owner in ("call", "self") for name in ("activation", "axis", "vector")}
"""Methods of `OperationCall` that check the argument that they read."""


def generate(descriptions: Mapping[str, str]) -> Documents:
    """Return the documents without the comment at their start.

    Args:
        descriptions: a sentence on each operation, by name.
    """
    by_room: dict[str, list[OperationType]] = {name: [] for name in ROOMS}
    for type_ in OperationType:
        by_room[_room(type_)].append(type_)
    documents = {Path("operation-arguments.md"): _index(descriptions)}
    for room, types in by_room.items():
        if room == "control-flow":
            documents[FOLDER / f"{room}.md"] = CONTROL_FLOW
            continue
        lines = [f"# {ROOMS[room]}", ""]
        lines += paragraph("[Operation arguments](../operation-arguments.md) explains how to read an entry.")
        for type_ in types:
            lines += _entry(SIGNATURES[type_], descriptions[type_.name])
        documents[FOLDER / f"{room}.md"] = "\n".join(lines).rstrip("\n") + "\n"
    return documents


def _room(type_: int) -> str:
    """Return the folder of an operation's shape rule."""
    if type_ not in SHAPE_RULES:
        return "control-flow"
    return SHAPE_RULES[type_].rule.__module__.removeprefix(f"{operations.__name__}.").split(".")[0]


def _index(descriptions: Mapping[str, str]) -> str:
    rows = []
    for type_ in OperationType:
        link = f"[{type_.name}]({FOLDER}/{_room(type_)}.md#{type_.name.lower()})"
        rows.append([str(type_.value), link, _counts(type_), escape(descriptions[type_.name])])
    return HEAD + "\n".join(table(["No.", "Operation", "Inputs", "Meaning"], rows)).rstrip("\n") + "\n"


def _counts(type_: int) -> str:
    if type_ not in SIGNATURES:
        return "3 or more"
    return ", ".join(_lengths(SIGNATURES[type_].inputs))


def _lengths(lists: Sequence[ArgumentList]) -> list[str]:
    return sorted({length for list_ in lists for length in list_.lengths}, key=lambda text: int(text.split()[0]))


# ---- One operation ------------------------------------------------------------------------------------------------


def _entry(signature: Signature, description: str) -> Iterator[str]:
    """Yield the section of one operation."""
    type_ = signature.type
    yield from (f"## {type_.name}", "")
    yield from paragraph(f"Operation {type_.value}. {description}")
    for form in signature.inputs:
        name = f" ({form.name})" if form.name else ""
        yield from paragraph(f"Inputs{name}: {', '.join(form.lengths)}.")
        yield from table(["Input", "Name", "Type", "Rank", "Note"], _argument_rows(signature, form))
    yield from table(["Output", "Name", "Type", "Rank", "Note"], _argument_rows(signature, signature.outputs))
    yield from _types(signature)
    if shape := _output_shapes(type_):
        yield from paragraph(f"Output shape: {shape}")
    if signature.quantization is not None:
        yield from paragraph(f"Quantization of the output: {_quantization(signature)} (V-RUN-05).")
    yield from _list("Checked when prepared:", [escape(_check_text(check)) for check in signature.checks])
    yield from _presence(type_)
    yield from _list("Checked when executed:", [code(text) for text in _requirements(SHAPE_RULES[type_].rule)])


def _presence(type_: int) -> Iterator[str]:
    """Yield what an operation requires of all inputs, if it differs from other operations."""
    rule = SHAPE_RULES[type_]
    if not rule.empty:
        yield from paragraph("Inputs with no elements are rejected when executed (V-RUN-02).")
    if rule.failure != ErrorStatus.GENERAL_FAILURE:
        yield from paragraph(f"The status of V-RUN-01 and V-RUN-02 is {rule.failure.name}.")


def _list(title: str, items: Sequence[str]) -> Iterator[str]:
    if not items:
        return
    yield from (title, "")
    for item in items:
        yield from textwrap.wrap(
            f"- {item}", 100, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )
    yield ""


def _argument_rows(signature: Signature, list_: ArgumentList) -> Iterator[list[str]]:
    position = 0
    repeated = False
    defaults = _defaults(SHAPE_RULES[signature.type].rule)
    for i, group in enumerate((list_.required, *list_.groups)):
        for argument in group:
            notes = []
            if argument.repeated:
                notes.append("one or more")
            if argument.optional:
                notes.append("optional")
            if i > 0:
                default = next((value for name, value in defaults.items() if re.fullmatch(name, argument.name)), "")
                notes.append("may be left out" + (f" (then {default})" if default else ""))
            yield [
                f"{position}, ..." if argument.repeated else "last" if repeated else str(position),
                argument.name,
                _type(argument),
                _rank(signature.ranks.get(argument.name)),
                ", ".join(notes),
            ]
            repeated = repeated or argument.repeated
            position += 1


def _type(argument: Argument) -> str:
    return argument.type if isinstance(argument.type, str) else OperandType(argument.type).name


def _rank(rank: Rank | None) -> str:
    if rank is None:
        return ""
    low, high = rank if isinstance(rank, tuple) else (rank, rank)
    return str(low) if low == high else f"{low} to {high}"


def _types(signature: Signature) -> Iterator[str]:
    columns = list(signature.rows[0])
    if columns:
        rows = [[OperandType(row[column]).name for column in columns] for row in signature.rows]
        yield from table(columns, rows)


def _quantization(signature: Signature) -> str:
    if isinstance(signature.quantization, str):
        return f"that of {signature.quantization}"
    assert signature.quantization is not None
    return "; ".join(
        f"{OperandType(type_).name} has scale 1/{1 / scale:g} and zero point {zero_point}"
        for type_, (scale, zero_point) in signature.quantization.items()
    )


def _check_text(check: Check) -> str:
    """Return a further check of a signature in words: its docstring, or that of the function that made it."""
    assert isinstance(check, FunctionType)
    variables: Mapping[str, Any] = {}
    function = check
    if "<locals>" in check.__qualname__:
        variables = inspect.getclosurevars(check).nonlocals
        function = check.__globals__[check.__qualname__.split(".")[0]]
    text = (inspect.getdoc(function) or "").splitlines()[0]
    text = re.sub(r"^(Return a check|Check)( that)? ", "", text).rstrip(".")
    for name, value in variables.items():
        text = text.replace(f"`{name}`", str(value))
    text = re.sub(r"(\w) is 0 more than", r"\1 equals", text)
    return f"{text[0].upper()}{text[1:]}."


# ---- Shape rules ---------------------------------------------------------------------------------------------------


def _output_shapes(type_: int) -> str:
    """Return the first sentence of a shape rule's docstring, without its verb, or "" if it names no shape."""
    text = (inspect.getdoc(SHAPE_RULES[type_].rule) or "").split("\n\n")[0].replace("\n", " ")
    return escape(text.removeprefix("Return ")) if text.startswith("Return ") else ""


@cache
def _parse(function: FunctionType) -> ast.AST:
    return ast.parse(textwrap.dedent(inspect.getsource(function)))


def _calls(function: Callable[..., object], seen: set[object]) -> Iterator[ast.Call]:
    """Yield the calls in a function of the shape rules and in the functions of that package that it calls, in order."""
    if not isinstance(function, FunctionType) or function in seen:
        return
    seen.add(function)
    calls = [node for node in ast.walk(_parse(function)) if isinstance(node, ast.Call)]
    for call in sorted(calls, key=lambda node: (node.lineno, node.col_offset)):
        yield call
        yield from _calls(_callee(function, call), seen)


def _callee(function: FunctionType, call: ast.Call) -> Callable[..., object]:
    """Return the function that a call runs if it belongs to the shape rules, else a built-in."""
    if isinstance(call.func, ast.Name):
        callee = function.__globals__.get(call.func.id)
        if isinstance(callee, FunctionType) and callee.__module__.startswith(operations.__name__):
            return callee
    elif isinstance(call.func, ast.Attribute) and ast.unparse(call.func) in _CHECKING_READERS:
        return getattr(OperationCall, call.func.attr)  # type: ignore[no-any-return]
    return print


def _requirements(rule: Callable[..., object]) -> list[str]:
    """Return the messages of the constraints that a shape rule checks."""
    texts = []
    for call in _calls(rule, set()):
        if isinstance(call.func, ast.Attribute) and call.func.attr == "require" and len(call.args) == 2:
            texts.append(message_template(call.args[1]))
    return [text for text in dict.fromkeys(texts) if text and not text.startswith("{")]


def _defaults(rule: Callable[..., object]) -> Mapping[str, str]:
    """Return the values of arguments that were left out, where the shape rule reads them, by patterns of names."""
    values: dict[str, str] = {}
    for call in _calls(rule, set()):
        if isinstance(call.func, ast.Attribute) and call.func.attr in _ARGUMENT_READERS and call.args:
            name = message_template(call.args[0])
            if len(call.args) > 1:
                values[_pattern(name)] = ast.unparse(call.args[1])
            elif call.func.attr == "flag":
                values[_pattern(name)] = "false"
    return values


def _pattern(name: str) -> str:
    """Return a regular expression for a name whose variable parts are in braces."""
    return ".*".join(re.escape(part) for part in re.split(r"\{[^}]*\}", name))
