"""Requests, on their own and against their model (V-REQ, V-REQARG, V-REQMODEL).

What needs the device's state is judged elsewhere: whether a token names a live buffer (V-REQ-02) and how buffers are
used (V-TOKEN). Overlap with constants of the model is not detected (the last third of V-REQARG-07).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from driver.validation import wire
from driver.validation.argument import FITTING, NUMBERS, OMITTED, PLACED, ArgumentIn, ArgumentOf
from driver.validation.pool import check_pools
from driver.validation.rule import Rules
from nnhal.types import (
    BufferToken,
    ExtensionOperandTypeInformation,
    Memory,
    Operand,
    Request,
    RequestArgument,
    RequestMemoryPool,
    type_name,
)

Form = tuple[object, ...]
"""What can be judged without its values: two requests of the same form are both valid, or neither is."""

_FORMS_KEPT = 64
_PARTS_KEPT = 256
"""Arguments and pools of a request whose form is kept: clients must not fill the memory with forms."""
_NAMES = {False: "input", True: "output"}
_NO_TYPES: Mapping[int, ExtensionOperandTypeInformation] = {}


@dataclass(frozen=True, slots=True)
class RequestOf:
    """A request, and the operands of its model's inputs and outputs."""

    request: Request
    inputs: Sequence[Operand]
    outputs: Sequence[Operand]


class Region(NamedTuple):
    """Bytes `start` to `end` of a memory, as an argument uses them. Sorts by memory, then by start."""

    memory: tuple[bool, int]
    start: int
    end: int
    is_output: bool
    number: int

    @property
    def name(self) -> str:
        """What a person calls the argument."""
        return f"{_NAMES[self.is_output]} {self.number}"


ALONE = Rules[Request]()
AGAINST_MODEL = Rules[RequestOf]()


def validate_request(
    request: Request,
    inputs: Sequence[Operand],
    outputs: Sequence[Operand],
    *,
    fenced: bool = False,
    extension_types: Mapping[int, ExtensionOperandTypeInformation] = _NO_TYPES,
) -> None:
    """Judges a request.

    Args:
        request: what is to be executed.
        inputs: operands behind the main subgraph's input indexes.
        outputs: operands behind its output indexes.
        fenced: a fenced execution, whose outputs have no shapes to report.
        extension_types: what the device knows of operand types of extensions, by their number.

    Raises:
        HalError: INVALID_ARGUMENT, with the first rule broken, or "" for a rule of the contract that the HAL lacks.
    """
    arguments = _arguments(request)
    for index, pool in enumerate(request.pools):
        wire.POOL.check(pool, partial("request pool {}".format, index))
    for is_output, index, argument in arguments:
        NUMBERS.check(argument, partial(_place, is_output, index))
    check_pools(request.pools, "request pool")
    for is_output, index, argument in arguments:
        place = partial(_place, is_output, index)
        OMITTED.check(argument, place)
        if not argument.has_no_value:
            PLACED.check(ArgumentIn(argument, request.pools, is_output, fenced), place)
    ALONE.check(request, lambda: "the request")
    AGAINST_MODEL.check(RequestOf(request, inputs, outputs), lambda: "the request")
    for is_output, index, argument in arguments:
        if not argument.has_no_value:
            operand = (outputs if is_output else inputs)[index]
            subject = ArgumentOf(argument, operand, is_output, fenced, extension_types.get(operand.type))
            FITTING.check(subject, partial(_place, is_output, index, operand))


class ValidRequests:
    """Requests of one model that were found valid: another one of the same form needs no second look. Thread safe.

    Args:
        inputs, outputs, extension_types: as for `validate_request`.
    """

    def __init__(
        self,
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
        extension_types: Mapping[int, ExtensionOperandTypeInformation] = _NO_TYPES,
    ) -> None:
        self._inputs = inputs
        self._outputs = outputs
        self._extension_types = extension_types
        self._forms: dict[Form, None] = {}

    def hold(self, request: Request, *, fenced: bool = False) -> None:
        """Judges a request; see `validate_request`.

        Raises:
            HalError: INVALID_ARGUMENT.
        """
        if len(request.inputs) + len(request.outputs) + len(request.pools) > _PARTS_KEPT:
            self._validate(request, fenced)
            return
        form = (fenced, _form(request.inputs), _form(request.outputs), _pools_form(request.pools))
        if form in self._forms:
            return
        self._validate(request, fenced)
        if len(self._forms) >= _FORMS_KEPT:  # a client that never sends the same form twice must not fill the memory
            self._forms.clear()
        self._forms[form] = None

    def _validate(self, request: Request, fenced: bool) -> None:
        validate_request(request, self._inputs, self._outputs, fenced=fenced, extension_types=self._extension_types)


def _form(arguments: Sequence[RequestArgument]) -> Form:
    """All that rules read of arguments."""
    # plain tuples: the generated hash of a dataclass costs as much as a rule
    return tuple(
        [
            (a.has_no_value, (at := a.location).pool_index, at.offset, at.length, at.padding, a.dimensions)
            for a in arguments
        ]
    )


def _pools_form(pools: Sequence[RequestMemoryPool]) -> Form:
    """All that rules read of pools: of a memory everything but its bytes, and which other pools are windows on it."""
    if len(pools) > 1:
        buffers = [id(pool.buffer) if isinstance(pool, Memory) else None for pool in pools]
        return tuple([(buffers.index(b), _pool_form(pool)) for b, pool in zip(buffers, pools, strict=True)])
    return tuple(map(_pool_form, pools))


def _pool_form(pool: RequestMemoryPool) -> Form:
    if isinstance(pool, Memory):
        buffer = pool.buffer
        return (pool.offset, pool.length, pool.prot, buffer.size, buffer.flags.writeable)
    if isinstance(pool, BufferToken):  # not the pool itself: it may hold the inside of a buffer
        return (BufferToken, pool.token > 0)
    return (pool,)


def _arguments(request: Request) -> list[tuple[bool, int, RequestArgument]]:
    """Every argument, inputs first: whether it is an output, its number, itself."""
    inputs = [(False, index, argument) for index, argument in enumerate(request.inputs)]
    return inputs + [(True, index, argument) for index, argument in enumerate(request.outputs)]


def _place(is_output: bool, index: int, operand: Operand | None = None) -> str:
    type_ = "" if operand is None else f" ({type_name(operand.type)})"
    return f"{_NAMES[is_output]} {index} of the request{type_}"


@ALONE.forbid("V-REQARG-07")
def _overlapping_output(request: Request) -> str | None:
    furthest: Region | None = None
    furthest_output: Region | None = None
    for region in sorted(_regions(request)):
        before = furthest if region.is_output else furthest_output
        if before and before.memory == region.memory and before.end > region.start:
            return f"has {before.name} and {region.name} on the same bytes of a pool"
        furthest = _further(furthest, region)
        if region.is_output:
            furthest_output = _further(furthest_output, region)
    return None


@AGAINST_MODEL.forbid("V-REQMODEL-01")
def _another_number_of_arguments(subject: RequestOf) -> str | None:
    for name, given, wanted in (
        ("inputs", subject.request.inputs, subject.inputs),
        ("outputs", subject.request.outputs, subject.outputs),
    ):
        if len(given) != len(wanted):
            return f"has {len(given)} {name}, but the model has {len(wanted)}"
    return None


def _regions(request: Request) -> Iterator[Region]:
    """The regions that are not empty: omitted arguments have none, and in pools of no known size each has its own."""
    for is_output, index, argument in _arguments(request):
        location = argument.location
        if location.length == 0:
            continue
        pool = request.pools[location.pool_index]
        # Two pools may be windows on one buffer; equal returned pools are still two.
        if isinstance(pool, Memory):
            memory, start = (True, id(pool.buffer)), pool.offset + location.offset
        else:
            memory, start = (False, location.pool_index), location.offset
        yield Region(memory, start, start + location.length, is_output, index)


def _further(one: Region | None, other: Region) -> Region:
    return one if one and one.memory == other.memory and one.end > other.end else other
