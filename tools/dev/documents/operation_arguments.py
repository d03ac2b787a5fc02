"""Arguments, types, ranks and constraints of every operation: docs/operation-arguments.md.

Argument lists, types, ranks and checks come from the signatures in `nnhal.operations`. Constraints on values come from
the messages of the shape rules in `nnhal_driver.operations`.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

from nnhal.operations import SIGNATURES
from nnhal.operations.signature import Argument, ArgumentList, Check, Signature
from nnhal.types import ErrorStatus, OperandType, OperationType
from nnhal_driver import operations
from nnhal_driver.operations import SHAPE_RULES
from nnhal_driver.operations.call import OperationCall
from tools.dev.documents.contract import operation_comments
from tools.dev.documents.error_message import message_template
from tools.dev.documents.markdown import Documents, code, escape, render

_ARGUMENT_READERS = {"integer", "number", "flag"}
_CHECKING_READERS = {f"{owner}.{name}" for owner in ("call", "self") for name in ("activation", "axis", "vector")}
"""Methods of `OperationCall` that check the argument that they read."""


def generate() -> Documents:
    """Return the page."""
    page = render(
        "operation_arguments",
        signatures=[SIGNATURES[type_] for type_ in OperationType if type_ in SIGNATURES],
        descriptions=operation_comments(),
        rules=SHAPE_RULES,
        arguments=_arguments,
        types=_types,
        output_shapes=_output_shapes,
        quantization=_quantization,
        checks=lambda signature: " ".join(map(_check_text, signature.checks)),
        requirements=_requirements,
        GENERAL_FAILURE=ErrorStatus.GENERAL_FAILURE,
    )
    return {Path("docs/operation-arguments.md"): page}


# ---- Signatures ----------------------------------------------------------------------------------------------------


def _arguments(signature: Signature, list_: ArgumentList) -> str:
    """Return a list of arguments with their positions, types, ranks and defaults. The page explains the notation."""
    defaults = _defaults(SHAPE_RULES[signature.type].rule)
    groups = []
    position: str | int = 0
    for group in (list_.required, *list_.groups):
        words = []
        for argument in group:
            words.append(f"{position} {_argument(argument, signature)}")
            position = "last" if argument.repeated or position == "last" else int(position) + 1
            default = next((value for name, value in defaults.items() if re.fullmatch(name, argument.name)), "")
            words[-1] += f" = {default}" if groups and default else ""
        groups.append(f"[{', '.join(words)}]" if groups else ", ".join(words))
    return ", ".join(filter(None, groups))


def _argument(argument: Argument, signature: Signature) -> str:
    type_ = argument.type if isinstance(argument.type, str) else OperandType(argument.type).name
    text = argument.name + ("" if type_ == "INT32" else f" {type_}")
    text += "..." if argument.repeated else "?" if argument.optional else ""
    if (rank := signature.ranks.get(argument.name)) is None:
        return text
    low, high = rank if isinstance(rank, tuple) else (rank, rank)
    return f"{text} of rank {low}" + (f" to {high}" if low != high else "")


def _types(signature: Signature) -> list[str]:
    return [", ".join(OperandType(type_).name for type_ in row.values()) for row in signature.rows]


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
    return escape(f"{text[0].upper()}{text[1:]}.")


# ---- Shape rules ---------------------------------------------------------------------------------------------------


def _output_shapes(type_: int) -> str:
    """Return the first sentence of a shape rule's docstring, without its verb, or "" if it names no shape."""
    verb, _, text = (inspect.getdoc(SHAPE_RULES[type_].rule) or "").split("\n\n")[0].replace("\n", " ").partition(" ")
    return escape(text) if verb == "Return" else ""


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
    texts = [
        message_template(call.args[1])
        for call in _calls(rule, set())
        if isinstance(call.func, ast.Attribute) and call.func.attr == "require" and len(call.args) == 2
    ]
    return [code(text) for text in dict.fromkeys(texts) if text and not text.startswith("{")]


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
