"""Arguments, types, ranks and constraints of every operation: docs/operation-arguments.md and its folder.

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
from tools.dev.documents.contract import operation_comments
from tools.dev.documents.error_message import message_template
from tools.dev.documents.markdown import Documents, code, escape, render, table

ROOMS = {
    "elementwise": "Elementwise operations",
    "layers": "Layers",
    "arrays": "Array operations",
}
"""Title of each document, by its name."""

_ARGUMENT_READERS = {"integer", "number", "flag"}
_CHECKING_READERS = {f"{owner}.{name}" for owner in ("call", "self") for name in ("activation", "axis", "vector")}
"""Methods of `OperationCall` that check the argument that they read."""


def generate() -> Documents:
    """Return an index, and a document for each room."""
    descriptions = operation_comments()
    documents = {Path("docs/operation-arguments.md"): _index(descriptions)}
    for room, title in ROOMS.items():
        documents[Path("docs/operation-arguments", f"{room}.md")] = render(
            "operations_of_folder",
            title=title,
            signatures=[SIGNATURES[type_] for type_ in OperationType if _room(type_) == room],
            descriptions=descriptions,
            rules=SHAPE_RULES,
            arguments=_arguments,
            types=_types,
            output_shapes=_output_shapes,
            quantization=_quantization,
            checks=lambda signature: [escape(_check_text(check)) for check in signature.checks],
            requirements=lambda rule: [code(text) for text in _requirements(rule)],
            GENERAL_FAILURE=ErrorStatus.GENERAL_FAILURE,
        )
    documents[Path("docs/operation-arguments/control-flow.md")] = render("control_flow")
    return documents


def _room(type_: int) -> str:
    """Return the folder of an operation's shape rule."""
    if type_ not in SHAPE_RULES:
        return "control-flow"
    return SHAPE_RULES[type_].rule.__module__.removeprefix(f"{operations.__name__}.").split(".")[0]


def _index(descriptions: Mapping[str, str]) -> str:
    rows = []
    for type_ in OperationType:
        link = f"[{type_.name}](operation-arguments/{_room(type_)}.md#{type_.name.lower()})"
        rows.append([str(type_.value), link, _counts(type_), escape(descriptions[type_.name])])
    operations_ = table(["No.", "Operation", "Inputs", "Meaning"], rows)
    return render("operation_arguments", operations="\n".join(operations_))


def _counts(type_: int) -> str:
    if type_ not in SIGNATURES:
        return "3 or more"
    return ", ".join(_lengths(SIGNATURES[type_].inputs))


def _lengths(lists: Sequence[ArgumentList]) -> list[str]:
    return sorted({length for list_ in lists for length in list_.lengths}, key=lambda text: int(text.split()[0]))


# ---- One operation ------------------------------------------------------------------------------------------------


def _arguments(kind: str, signature: Signature, list_: ArgumentList) -> str:
    return "\n".join(table([kind, "Name", "Type", "Rank", "Note"], _argument_rows(signature, list_)))


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


def _types(signature: Signature) -> str:
    columns = list(signature.rows[0])
    return "\n".join(table(columns, [[OperandType(row[column]).name for column in columns] for row in signature.rows]))


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
