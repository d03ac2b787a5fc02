"""Rules for the extension names of a model or a configuration (V-EXT).

Two rules are not enforced. V-EXT-03: the domain in a name is not checked. V-EXT-08: a prefix that is missing from the
table makes an operation unsupported, not invalid.
"""

import re
from collections.abc import Sequence

from nnhal.rules.rule import Rules, first_repeated
from nnhal.types import ExtensionNameAndPrefix

_MAX_PREFIX = 2**15 - 1

NAME_RULES = Rules[ExtensionNameAndPrefix]()
TABLE_RULES = Rules[Sequence[ExtensionNameAndPrefix]]()


def check_extension_names(names: Sequence[ExtensionNameAndPrefix], table: str) -> None:
    """Check a table of extension names. `table` is its name for messages.

    Raises:
        HalError: INVALID_ARGUMENT, V-EXT-01, -02, -04, -05 or -06.
    """
    for name in names:
        NAME_RULES.check(name, lambda: table)
    TABLE_RULES.check(names, lambda: table)


@NAME_RULES.forbid("V-EXT-01")
def _invalid_character(name: ExtensionNameAndPrefix) -> str | None:
    if re.fullmatch(r"[a-z0-9._]*", name.name):
        return None
    return f"has name {name.name!r}, must consist of a-z, 0-9, '.' and '_'"


@NAME_RULES.forbid("V-EXT-02")
def _name_without_period(name: ExtensionNameAndPrefix) -> str | None:
    return None if "." in name.name else f"has name {name.name!r}, must contain a period"


@NAME_RULES.forbid("V-EXT-06")
def _prefix_out_of_range(name: ExtensionNameAndPrefix) -> str | None:
    if 0 <= name.prefix <= _MAX_PREFIX:
        return None
    return f"has prefix {name.prefix} for {name.name!r}, must be 0 to {_MAX_PREFIX}"


@TABLE_RULES.forbid("V-EXT-04")
def _repeated_name(names: Sequence[ExtensionNameAndPrefix]) -> str | None:
    name = first_repeated(entry.name for entry in names)
    return None if name is None else f"has name {name!r} twice"


@TABLE_RULES.forbid("V-EXT-05")
def _repeated_prefix(names: Sequence[ExtensionNameAndPrefix]) -> str | None:
    prefix = first_repeated(entry.prefix for entry in names)
    return None if prefix is None else f"has prefix {prefix} twice"
