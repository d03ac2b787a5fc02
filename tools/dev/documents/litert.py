"""Description of the drop-in interpreter, and the table of LiteRT's public Python interface: docs/litert.md.

The members come from the installed package, and the programs that compare each of them from the tests.
"""

import enum
import importlib.metadata
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ai_edge_litert import interpreter as original

from nnhal import litert
from tests.nnhal.litert.programs import PROGRAMS
from tools.dev.documents.markdown import Documents, code, escape, render, table

DOCUMENT = Path("docs/litert.md")
PRIVATE = frozenset({"_get_full_signature_list", "_get_op_details", "_get_ops_details", "_get_tensor_details"})
"""Members that are not public, but that tools for LiteRT call."""
_SAME = "the same"
_NO_EFFECT = "no effect: it chooses something in LiteRT's engine"
ARGUMENTS = {
    "Interpreter(model_path)": _SAME,
    "Interpreter(model_content)": _SAME,
    "Interpreter(experimental_delegates)": "none may be given; `load_delegate` says what to do",
    "Interpreter(num_threads)": "no effect: the service decides",
    "Interpreter(experimental_op_resolver_type)": "no effect: the service has its own kernels",
    "Interpreter(experimental_preserve_all_tensors)": "a warning: intermediate tensors stay on the device",
    "InterpreterWithCustomOps(custom_op_registerers)": "none may be given: the device has no kernels of the program",
    "SignatureRunner(interpreter)": _SAME,
    "SignatureRunner(signature_key)": _SAME,
}
"""Arguments of constructors. All others have no effect."""


def members() -> Iterator[tuple[str, Any]]:
    """Yield the name of each member of LiteRT's module, and the object of nnhal in its place; None for an argument.

    Raises:
        AttributeError: nnhal lacks a member.
    """
    for name, value in vars(original).items():
        if name.startswith("_") or getattr(value, "__module__", "") != original.__name__:
            continue
        yield name, getattr(litert, name)
        if not inspect.isclass(value) or issubclass(value, enum.Enum):
            continue
        if name != "Delegate":
            parameters = list(inspect.signature(value).parameters.values())
            yield from ((f"{name}({each.name})", None) for each in parameters if each.kind != each.VAR_KEYWORD)
        for member in vars(value):
            if member == "__call__" or member in PRIVATE or not member.startswith("_"):
                yield f"{name}.{member}", getattr(getattr(litert, name), member)


def describe(name: str, value: Any) -> str:
    """Return what a member does in nnhal."""
    if value is None:
        return ARGUMENTS.get(name, _NO_EFFECT)
    return (inspect.getdoc(value) or "").partition("\n")[0]


def generate() -> Documents:
    """Return the page for the installed package.

    Raises:
        SystemExit: a member has no program that compares it.
    """
    rows = []
    for name, value in members():
        if name not in PROGRAMS:
            raise SystemExit(f"{name} of LiteRT has no program in tests/nnhal/litert/programs.py")
        programs = ", ".join(code(each.__name__) for each in PROGRAMS[name])
        rows.append([code(name), escape(describe(name, value)), programs])
    text = render(
        "litert",
        version=importlib.metadata.version("ai-edge-litert"),
        members=table(["Member of LiteRT", "In nnhal", "Programs that compare both"], rows),
    )
    return {DOCUMENT: text}
