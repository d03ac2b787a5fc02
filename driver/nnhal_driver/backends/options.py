"""Options of a backend: what the operator sets for its factory (since 1.2 of the interface)."""

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from math import isfinite
from typing import NoReturn, TypeVar

from nnhal_driver.backends.identity import BackendIdentity
from nnhal_driver.backends.memory import MemoryMode

E = TypeVar("E", bound=Enum)
N = TypeVar("N", int, float)
T = TypeVar("T")

OptionValues = Mapping[str, Mapping[str, str]]
"""Values of options, by the id of the backend and by key."""

_FLAGS = {"true": True, "false": False}


class Precision(Enum):
    """Precision that the operator wants. NORMAL is that of the model; LOW may use half precision."""

    NORMAL = "normal"
    HIGH = "high"
    LOW = "low"


class PowerMode(Enum):
    """Power that the operator allows."""

    NORMAL = "normal"
    HIGH = "high"
    LOW = "low"


class OptionError(ValueError):
    """A backend rejects an option.

    Attributes:
        key: key of the option.
        id: id of the backend; "" if it is not known yet.
    """

    def __init__(self, key: str, reason: str, id_: str = "") -> None:
        super().__init__(reason)
        self.key = key
        self.id = id_


class BackendOptions:
    """Options for one object of a backend. `BackendFactory(options)` gets them.

    Each method reads an option by its key. The service does not start with an option that the factory has not read, or
    with an invalid value. Names with a common meaning are properties.
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)
        self._read: dict[str, None] = {}
        self._uncached: set[str] = set()

    @property
    def threads(self) -> int:
        """Option "threads": number of threads for one execution; 0 if the backend may choose."""
        return self.integer("threads", 0, minimum=0)

    @property
    def precision(self) -> Precision:
        """Option "precision": normal, high or low."""
        return self._member("precision", Precision)

    @property
    def power(self) -> PowerMode:
        """Option "power": normal, high or low."""
        return self._member("power", PowerMode)

    @property
    def memory(self) -> MemoryMode:
        """Option "memory": normal or limit. LIMIT is for all models, in addition to `CompileOptions.memory_mode`."""
        names = {mode.name.lower(): mode for mode in MemoryMode}
        return names[self.text("memory", MemoryMode.NORMAL.name.lower(), choices=names)]

    def text(self, key: str, default: str = "", *, choices: Collection[str] = ()) -> str:
        """Return the text of an option, or `default` if the operator does not set it. No choices allow any text."""
        value = self.find(key)
        if value is None:
            return default
        if choices and value not in choices:
            self.reject(key, f"expected {', '.join(choices)}")
        return value

    def integer(self, key: str, default: int = 0, *, minimum: int | None = None) -> int:
        """Return an option that is a whole number."""
        return self._number(key, default, minimum, int, "a whole number")

    def number(self, key: str, default: float = 0.0, *, minimum: float | None = None) -> float:
        """Return an option that is a number."""
        return self._number(key, default, minimum, float, "a number")

    def flag(self, key: str, default: bool = False) -> bool:
        """Return an option that is true or false."""
        value = self.find(key)
        if value is None:
            return default
        if value not in _FLAGS:
            self.reject(key, "expected true or false")
        return _FLAGS[value]

    def reject(self, key: str, reason: str) -> NoReturn:
        """Reject the value of an option. The service does not start.

        Args:
            key: key of the option.
            reason: why, for the operator, for example "there is no such core; expected 0 or 1".

        Raises:
            OptionError: always.
        """
        raise OptionError(key, reason)

    def exclude_from_cache_key(self, *keys: str) -> None:
        """State that `Backend.load` accepts what was saved with other values of these options.

        Other options are part of the cache key: a model that was saved with another value is compiled again.
        """
        self._uncached.update(keys)

    def find(self, key: str) -> str | None:
        """Return the text of an option, or None if the operator does not set it."""
        self._read[key] = None
        return self._values.get(key)

    def _member(self, key: str, choices: type[E]) -> E:
        return choices(self.text(key, "normal", choices=[choice.value for choice in choices]))

    def _number(self, key: str, default: N, minimum: N | None, parse: Callable[[str], N], expected: str) -> N:
        value = self.find(key)
        if value is None:
            return default
        try:
            number = parse(value)
        except ValueError:
            self.reject(key, f"expected {expected}")
        if not isfinite(number) or (minimum is not None and number < minimum):
            self.reject(key, f"expected {expected}" + ("" if minimum is None else f" from {minimum} on"))
        return number


def call_factory(factory: Callable[..., T], options: BackendOptions) -> T:
    """Call a factory: with the options, if it takes an argument."""
    return factory(options) if takes_options(factory) else factory()


def checked_creation(id_: str, create: Callable[[], T], options: BackendOptions) -> T:
    """Call a function that creates a backend with options.

    Raises:
        OptionError: it rejects an option, or does not read it.
    """
    values, read = options._values, options._read
    try:
        created = create()
    except OptionError as error:
        given = f"invalid value {values[error.key]!r}: " if error.key in values else ""
        text = f"{option_text(id_, error.key)}: {given}{error}"
        raise OptionError(error.key, text, id_) from None
    for key in values:
        if key not in read:
            known = f"it has {', '.join(sorted(read))}" if read else "it has no options"
            raise OptionError(key, f"{option_text(id_, key)}: the backend has no such option; {known}", id_)
    return created


def keys_read(options: BackendOptions) -> tuple[str, ...]:
    """Return the keys that were read, in the order of the first time."""
    return tuple(options._read)


def option_text(id_: str, key: str) -> str:
    """Return the name of an option as the operator gives it."""
    return f"--backend-option {id_}.{key}"


def takes_options(factory: Callable[..., object]) -> bool:
    """Return whether a factory takes the options: its first argument has no default, or is called `options`."""
    try:
        parameters = list(inspect.signature(factory).parameters.values())
    except (TypeError, ValueError):  # some functions in C have no signature
        return False
    first = parameters[0] if parameters else None
    if first is None or first.kind not in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD):
        return False
    return first.default is first.empty or first.name == "options"


def identity_with_options(files: str, options: BackendOptions) -> BackendIdentity:
    """Return the identity of a backend by the digest of its files, or "", and the options of its factory."""

    def chosen(keys: Iterable[str]) -> tuple[tuple[str, str], ...]:
        return tuple((key, options._values[key]) for key in sorted(keys))

    uncached = options._uncached & options._values.keys()
    return BackendIdentity(files, chosen(options._values.keys() - uncached), chosen(uncached))
