"""The result of one model of the corpus."""

from collections.abc import Mapping
from dataclasses import dataclass, field

UNPREPARED = "does not prepare it:"
"""Beginning of a verdict if a device refuses the model."""


@dataclass(frozen=True)
class Result:
    """The result of one model.

    Attributes:
        name: the name of the model.
        litert: why LiteRT does not run the model, or "".
        refusal: why the import without the LiteRT extension fails, or "".
        obstacle: why the import with it fails, or "".
        operations: the operations of the imported model.
        verdicts: for each backend, how its results differ, or "".
        crash: the step in which the process ended, or "".
    """

    name: str
    litert: str = ""
    refusal: str = ""
    obstacle: str = ""
    operations: tuple[str, ...] = ()
    verdicts: Mapping[str, str] = field(default_factory=dict)
    crash: str = ""

    @property
    def operator(self) -> str:
        """The name of the operator."""
        return self.name.partition(" ")[0]

    @property
    def kind(self) -> str:
        """The outcome of the import: direct, composed, extension, refused, not run, or crashed."""
        if self.crash:
            return "crashed"
        if self.litert:
            return "not run"
        if self.refusal:
            return "refused" if self.obstacle else "extension"
        return "direct" if len(self.operations) == 1 else "composed"

    @property
    def reason(self) -> str:
        """Why NNAPI does not run the model, without the name of the operator."""
        message = self.refusal.removesuffix("; the LiteRT extension is turned off")
        return message.partition("): ")[2] or message

    @property
    def unprepared(self) -> list[str]:
        """Reasons why a device does not prepare the imported model."""
        return [line for line in self._failures if f" {UNPREPARED}" in line]

    @property
    def problems(self) -> list[str]:
        """Other errors of nnhal: wrong results, failed executions, exceptions, crashes."""
        if self.crash:
            return [f"{self.name}: {self.crash} ended the process"]
        return [line for line in self._failures if f" {UNPREPARED}" not in line]

    @property
    def _failures(self) -> list[str]:
        return [f"{self.name}: {backend} {verdict}" for backend, verdict in self.verdicts.items() if verdict]
