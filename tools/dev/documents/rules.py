"""List of the validation rules, from the source files that check them: docs/rules.md.

Three forms give a rule its id: the decorator `forbid` of a rule table, an argument of a call that makes an error, and
the default of a parameter. No module is imported, so that the list also covers those that need optional packages.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tools.dev.documents.error_message import message_template
from tools.dev.documents.markdown import ROOT, Documents, code, render, table

FOLDERS = ("client/nnhal", "driver/nnhal_driver", "service/nnhal_service")
HELPERS = "client/nnhal/rules/ranges.py"
"""Functions that rule functions of several modules call."""
RULE = re.compile(r"V-[A-Z]+-\d+")

SUMMARIES = {
    "V-ALLOC-07": "Buffer of a type that the device does not support",
    "V-EXECARG-04": "Fence in error before the execution starts",
    "V-EXT-08": "Extension without an entry in the table of prefixes, in the model builder",
    "V-MODEL-03": "Invalid references between subgraphs",
    "V-REQ-02": "Token of an unknown buffer",
    "V-RUN-01": "Argument without a value that the operation requires",
    "V-RUN-02": "Argument without elements that the operation requires",
    "V-RUN-03": "Constraint of an [operation](operation-arguments.md), checked when executed",
    "V-RUN-04": "Value with a shape other than the declared one",
    "V-RUN-05": "Output with a scale or zero point that the operation does not give",
    "V-RUN-06": "Output whose size in bytes does not fit 32 bits",
    "V-SUBGRAPH-03": "Subgraph without outputs, in the model builder",
    "V-TOKEN-02": "Input in an uninitialized buffer",
    "V-TOKEN-06": "Output with a shape other than that of its buffer",
}
"""Descriptions of the rules that no function of a rule table checks."""


@dataclass(frozen=True)
class RuleCheck:
    """A place that checks a rule.

    Attributes:
        messages: templates of the error messages.
    """

    rule: str
    forbids: str
    messages: tuple[str, ...]
    path: str


def _rule_of(node: ast.expr | None) -> str:
    is_rule = isinstance(node, ast.Constant) and isinstance(node.value, str) and RULE.fullmatch(node.value)
    return node.value if is_rule else ""  # type: ignore[union-attr, return-value]


def _summary(function: ast.FunctionDef) -> str:
    """Return what a rule function forbids: the first line of its docstring, or its name in words."""
    if docstring := ast.get_docstring(function):
        return docstring.splitlines()[0]
    words = re.sub(r" (if|while)$", lambda match: match[0].upper(), function.name.strip("_").replace("_", " "))
    return f"{words[0].upper()}{words[1:]}"


def _table_rules(function: ast.FunctionDef, helpers: Mapping[str, ast.FunctionDef], path: str) -> Iterator[RuleCheck]:
    """Yield the rules that a function of a rule table checks. `helpers`: functions whose messages it may return."""
    for decorator in function.decorator_list:
        if not isinstance(decorator, ast.Call) or not ast.unparse(decorator.func).endswith(".forbid"):
            continue
        if rule := _rule_of(decorator.args[0]):
            yield RuleCheck(rule, _summary(function), tuple(_returned_messages(function, helpers, set())), path)


def _returned_messages(
    function: ast.FunctionDef, helpers: Mapping[str, ast.FunctionDef], seen: set[str]
) -> Iterator[str]:
    """Yield the messages that a function and the helpers that it calls return."""
    seen.add(function.name)
    for node in ast.walk(function):
        if isinstance(node, ast.Return) and node.value is not None and (text := message_template(node.value)):
            yield text
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id not in seen:
            helper = helpers.get(node.func.id)
            if helper is not None and helper.returns is not None and "None" in ast.unparse(helper.returns):
                yield from _returned_messages(helper, helpers, seen)


def _raised_rules(tree: ast.AST, path: str) -> Iterator[RuleCheck]:
    """Yield the rules that errors name: an argument of the call that makes them, or the default of a parameter."""
    for function in _functions(tree).values():
        assigned = _assigned_messages(function)
        for node in ast.walk(function):
            if not isinstance(node, ast.Call) or ast.unparse(node.func).endswith(".forbid"):
                continue
            arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
            for rule in filter(None, map(_rule_of, arguments)):
                texts = [text for text in map(message_template, arguments) if text and not RULE.fullmatch(text)][:1]
                names = [argument.id for argument in arguments if isinstance(argument, ast.Name)]
                texts += [text for name in names for text in assigned.get(name, [])]
                yield RuleCheck(rule, SUMMARIES.get(rule, ""), tuple(texts), path)
    for node in ast.walk(tree):
        values = node.args.defaults if isinstance(node, ast.FunctionDef) else []
        if isinstance(node, ast.Assign):
            values = [node.value]
        for rule in filter(None, map(_rule_of, values)):
            yield RuleCheck(rule, SUMMARIES.get(rule, ""), (), path)


def _assigned_messages(function: ast.FunctionDef) -> Mapping[str, list[str]]:
    """Return the messages that a function assigns to each of its variables."""
    messages: dict[str, list[str]] = {}
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        if text := message_template(node.value):
            messages.setdefault(node.targets[0].id, []).append(text)
    return messages


@cache
def checks() -> tuple[RuleCheck, ...]:
    """Return every check of a rule in the product, in the order of the rules."""
    found: list[RuleCheck] = []
    shared = _functions(ast.parse((ROOT / HELPERS).read_text(encoding="utf-8")))
    for folder in FOLDERS:
        for file in sorted((ROOT / folder).rglob("*.py")):
            if "_pb2" in file.name:
                continue
            path = str(file.relative_to(ROOT))
            tree = ast.parse(file.read_text(encoding="utf-8"))
            functions = _functions(tree)
            for function in functions.values():
                found += _table_rules(function, shared | functions, path)
            found += _raised_rules(tree, path)
    return tuple(sorted(found, key=lambda check: (check.rule, not check.forbids)))


def _functions(tree: ast.AST) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def _distinct(items: Sequence[str]) -> list[str]:
    return [item for item in dict.fromkeys(items) if item]


def generate() -> Documents:
    """Return the list."""
    found = checks()
    rows = []
    for rule in _distinct([check.rule for check in found]):
        of_rule = [check for check in found if check.rule == rule]
        paths, forbids = (_distinct([getattr(check, name) for check in of_rule]) for name in ("path", "forbids"))
        rows.append(
            [
                rule,
                "; ".join([*forbids[:1], *(f"{text[0].lower()}{text[1:]}" for text in forbids[1:])]),
                "<br>".join(code(text) for text in _distinct([text for check in of_rule for text in check.messages])),
                "<br>".join(f"[{Path(path).name}](../{path})" for path in paths),
            ]
        )
    listed = table(["Rule", "Forbids", "Messages", "Checked in"], rows)
    return {Path("docs/rules.md"): render("rules", rules=listed)}
