"""Table of functions in docs/ndk.md: state, rules, and the tests of each result code.

It comes from the functions, `ndk_rules.txt` and the committed results of `ndk_results`.
"""

import re
from pathlib import Path

from nnhal_ndk.api.constants import ResultCode
from nnhal_ndk.api.functions import FUNCTIONS
from nnhal_tools.conformance.device.ndk_library import short_name
from tools.dev.documents.markdown import Documents, table, with_generated
from tools.dev.ndk_results import Results, recorded_results

RULES = Path(__file__).with_name("ndk_rules.txt")
ANDROID_ONLY = frozenset({"Memory_createFromAHardwareBuffer"})


def rules() -> dict[str, str]:
    """Return the rule of each function, by its short name."""
    return dict(line.split(" | ", 1) for line in RULES.read_text("utf-8").splitlines())


def documented_codes(rule: str) -> list[str]:
    """Return the result codes that a rule names."""
    return [code.name for code in ResultCode if re.search(rf"\b{code.name}\b", rule)]


def render_table(results: Results) -> str:
    """Return the table."""
    rows = []
    for function in FUNCTIONS:
        name = short_name(function.name)
        tests = ", ".join(f"{code} {count}" for code, count in results.get(name, {}).items())
        state = "Android only" if name in ANDROID_ONLY else "complete"
        rows.append([f"`{name}`", str(function.level), state, rules()[name], tests])
    return table(["function", "level", "state", "rule", "tests"], rows)


def generate() -> Documents:
    """Return the document with the current table."""
    return with_generated(Path("docs/ndk.md"), render_table(recorded_results()))
