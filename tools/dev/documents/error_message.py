"""Templates of error messages, from the string expressions in the source: `has rank {rank}; it must be 4`."""

import ast

_CONVERSIONS = {"int", "list", "str", "tuple", "type_name", "OperandLifeTime"}
"""Calls that change only the form of a value."""


def message_template(node: ast.expr) -> str:
    """Return the text of a string expression, with a name for each variable part in braces, or ""."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.BinOp(op=ast.Add()):
            return message_template(node.left) + message_template(node.right)
        case ast.IfExp():
            return message_template(node.body) or message_template(node.orelse)
        case ast.JoinedStr():
            return "".join(map(_part, node.values))
    return ""


def _part(part: ast.expr) -> str:
    if not isinstance(part, ast.FormattedValue):
        return message_template(part)
    return message_template(part.value) or f"{{{_variable(part.value)}}}"


def _variable(node: ast.expr) -> str:  # noqa: PLR0911 - one return for each form of expression
    """Return a short name for the value of an expression."""
    match node:
        case ast.Name(id=name):
            return name.strip("_").lower() if name.isupper() else name
        case ast.Attribute(attr="name" | "value"):
            return _variable(node.value)
        case ast.Attribute(attr=name):
            return name
        case ast.Call(func=ast.Name(id=name), args=[argument, *_]) if name in _CONVERSIONS:
            return _variable(argument)
        case ast.Call(func=ast.Name(id="len"), args=[argument]):
            return f"len({_variable(argument)})"
        case ast.Call(func=ast.Attribute(attr="replace", value=value)):
            return _variable(value)
        case ast.Call(func=ast.Attribute(attr="index")):
            return "index"
        case ast.Call(func=ast.Attribute(attr="join")):
            return "values"
        case ast.Subscript(value=ast.Name(id=name)) if name.isupper():
            return name.strip("_").lower().removesuffix("s")
        case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult()):
            sign = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}[type(node.op)]
            return f"{_variable(node.left)} {sign} {_variable(node.right)}"
    return ast.unparse(node)
