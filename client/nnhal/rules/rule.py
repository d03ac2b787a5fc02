"""Tables of validation rules: one small function per rule, named after what it forbids and registered under its id.

OPERAND_RULES = Rules[Operand]()

@OPERAND_RULES.forbid("V-OPERAND-03")
def _scalar_with_dimensions(operand: Operand) -> str | None:
    return "has dimensions" if operand.type in SCALAR_TYPES and operand.dimensions else None
"""

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from nnhal.errors import invalid_argument

S = TypeVar("S")
H = TypeVar("H", bound=Hashable)


class Rules(Generic[S]):
    """Rules for one kind of subject, applied in the order of their registration."""

    def __init__(self) -> None:
        self._rules: list[tuple[str, Callable[[S], str | None]]] = []

    def forbid(self, rule: str) -> Callable[[Callable[[S], str | None]], Callable[[S], str | None]]:
        """Register the decorated function under a rule id.

        The function returns what is wrong with a subject, or None. The text follows the subject's name in messages.
        """

        def register(function: Callable[[S], str | None]) -> Callable[[S], str | None]:
            self._rules.append((rule, function))
            return function

        return register

    def first_broken(self, subject: S) -> tuple[str, str] | None:
        """Return the id of the first rule that a subject breaks and what is wrong, or None."""
        for rule, function in self._rules:
            if (problem := function(subject)) is not None:
                return rule, problem
        return None

    def check(self, subject: S, name: Callable[[], str]) -> None:
        """Apply every rule. `name` returns the subject's name for the message, and is called only if a rule is broken.

        Raises:
            HalError: INVALID_ARGUMENT, with the id of the first rule that the subject breaks.
        """
        if broken := self.first_broken(subject):
            rule, problem = broken
            raise invalid_argument(f"{name()} {problem}", rule)


def first_repeated(items: Iterable[H]) -> H | None:
    """Return the first item that occurred before, or None. No item may be None."""
    seen: set[H] = set()
    for item in items:
        if item in seen:
            return item
        seen.add(item)
    return None
