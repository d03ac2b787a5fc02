"""Tables of extension names, of models and of configurations (V-EXT).

Which prefixes a model uses is not compared with its table (V-EXT-08): what a device cannot resolve is unsupported, not
invalid. Nor is a name's domain judged (V-EXT-03).
"""

import re
from collections.abc import Sequence

from driver.validation.repeat import first_repeated
from driver.validation.rule import Rules
from nnhal.types import ExtensionNameAndPrefix

_PREFIX_END = 1 << 15

NAME = Rules[ExtensionNameAndPrefix]()
TABLE = Rules[Sequence[ExtensionNameAndPrefix]]()


def check_extension_names(names: Sequence[ExtensionNameAndPrefix], place: str) -> None:
    """Judges a table.

    Args:
        names: the table.
        place: what a person calls the table.

    Raises:
        HalError: INVALID_ARGUMENT, V-EXT-01, -02, -04, -05 or -06.
    """
    for name in names:
        NAME.check(name, lambda: place)
    TABLE.check(names, lambda: place)


@NAME.forbid("V-EXT-01")
def _letters_that_no_name_has(name: ExtensionNameAndPrefix) -> str | None:
    if re.fullmatch(r"[a-z0-9._]*", name.name):
        return None
    return f"has name {name.name!r}, must consist of a-z, 0-9, '.' and '_'"


@NAME.forbid("V-EXT-02")
def _name_without_period(name: ExtensionNameAndPrefix) -> str | None:
    return None if "." in name.name else f"has name {name.name!r}, must contain a period"


@NAME.forbid("V-EXT-06")
def _prefix_beyond_15_bits(name: ExtensionNameAndPrefix) -> str | None:
    if 0 <= name.prefix < _PREFIX_END:
        return None
    return f"has prefix {name.prefix} for {name.name!r}, must be 0 to {_PREFIX_END - 1}"


@TABLE.forbid("V-EXT-04")
def _repeated_name(names: Sequence[ExtensionNameAndPrefix]) -> str | None:
    name = first_repeated(entry.name for entry in names)
    return None if name is None else f"has name {name!r} twice"


@TABLE.forbid("V-EXT-05")
def _repeated_prefix(names: Sequence[ExtensionNameAndPrefix]) -> str | None:
    prefix = first_repeated(entry.prefix for entry in names)
    return None if prefix is None else f"has prefix {prefix} twice"
