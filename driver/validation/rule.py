"""How rules are written: one small function for each, named after what it forbids, registered under its id.

    OPERAND = Rules[Operand]()

    @OPERAND.forbid("V-OPERAND-03")
    def _scalar_with_dimensions(operand: Operand) -> str | None:
        return "has dimensions" if operand.type in SCALAR_TYPES and operand.dimensions else None

`check` applies the rules in the order of their registration; the first that complains ends it with INVALID_ARGUMENT,
the rule's id, and the place that the caller names.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

from nnhal.errors import invalid_argument

S = TypeVar("S")


class Rules(Generic[S]):
    """Rules over one kind of subject, in order."""

    def __init__(self) -> None:
        self._rules: list[tuple[str, Callable[[S], str | None]]] = []

    def forbid(self, rule: str) -> Callable[[Callable[[S], str | None]], Callable[[S], str | None]]:
        """Registers a function that says what is wrong with a subject, or None."""

        def register(function: Callable[[S], str | None]) -> Callable[[S], str | None]:
            self._rules.append((rule, function))
            return function

        return register

    def check(self, subject: S, place: Callable[[], str]) -> None:
        """Applies every rule.

        Args:
            subject: what is judged.
            place: names the subject for a person ("operand 3 of main"); asked only when a rule is broken.

        Raises:
            HalError: INVALID_ARGUMENT, with the id of the first rule broken.
        """
        for rule, function in self._rules:
            if (complaint := function(subject)) is not None:
                raise invalid_argument(f"{place()} {complaint}", rule)
