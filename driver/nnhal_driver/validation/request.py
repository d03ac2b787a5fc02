"""Requests, alone and against their model (V-REQ, V-REQARG, V-REQMODEL).

Rules that need the device's state are elsewhere: V-REQ-02 (a token names a live buffer) and V-TOKEN (use of buffers).
The overlap of outputs with constants of the model is not checked (last third of V-REQARG-07).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from nnhal.rules.rule import Rules
from nnhal.types import (
    BufferToken,
    Memory,
    Operand,
    Request,
    RequestArgument,
    RequestMemoryPool,
    type_name,
)
from nnhal_driver.extension_types import ExtensionTypes, ValueType
from nnhal_driver.validation.argument import (
    ARGUMENT_LOCATION_RULES,
    ARGUMENT_RANGE_RULES,
    OMITTED_ARGUMENT_RULES,
    OPERAND_MATCH_RULES,
    ArgumentOfOperand,
    LocatedArgument,
)
from nnhal_driver.validation.error_location import KINDS
from nnhal_driver.validation.pool import check_pools
from nnhal_driver.validation.ranges import POOL_KIND_RULES

CacheKey = tuple[object, ...]
"""Everything in a request except tensor bytes: of two requests with equal keys, both are valid or neither is."""

_MAX_KEYS = 64
_MAX_PARTS = 256
"""Most arguments and pools of a request whose key is cached, so that clients cannot fill the memory with keys."""
_NO_TYPES: ExtensionTypes = {}


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A request, and the operands of its model's inputs and outputs."""

    request: Request
    inputs: Sequence[Operand]
    outputs: Sequence[Operand]


class Region(NamedTuple):
    """Bytes `start` to `end` of a memory that an argument uses. Regions sort by memory, then by start."""

    memory: tuple[bool, int]
    start: int
    end: int
    is_output: bool
    number: int

    @property
    def name(self) -> str:
        """The name of the argument in messages."""
        return f"{KINDS[self.is_output]} {self.number}"


REQUEST_RULES = Rules[Request]()
MODEL_MATCH_RULES = Rules[ModelRequest]()


def validate_request(
    request: Request,
    inputs: Sequence[Operand],
    outputs: Sequence[Operand],
    *,
    fenced: bool = False,
    extension_types: ExtensionTypes = _NO_TYPES,
) -> None:
    """Check a request, given the operands of the main subgraph's inputs and outputs.

    `fenced`: True for a fenced execution, which cannot report the shapes of its outputs; `extension_types`: the
    descriptions of the operand types of extensions by the device, by type.

    Raises:
        HalError: INVALID_ARGUMENT, with the id of the first broken rule, or "" for a rule that the HAL does not have.
    """
    arguments = _arguments(request)
    for index, pool in enumerate(request.pools):
        POOL_KIND_RULES.check(pool, partial("request pool {}".format, index))
    for is_output, index, argument in arguments:
        ARGUMENT_RANGE_RULES.check(argument, partial(_argument_name, is_output, index))
    check_pools(request.pools, "request pool")
    for is_output, index, argument in arguments:
        name = partial(_argument_name, is_output, index)
        OMITTED_ARGUMENT_RULES.check(argument, name)
        if not argument.has_no_value:
            ARGUMENT_LOCATION_RULES.check(LocatedArgument(argument, request.pools, is_output, fenced), name)
    REQUEST_RULES.check(request, lambda: "the request")
    MODEL_MATCH_RULES.check(ModelRequest(request, inputs, outputs), lambda: "the request")
    for is_output, index, argument in arguments:
        if not argument.has_no_value:
            operand = (outputs if is_output else inputs)[index]
            type_ = ValueType(operand, extension_types.get(operand.type))
            subject = ArgumentOfOperand(argument, type_, is_output, fenced)
            OPERAND_MATCH_RULES.check(subject, partial(_argument_name, is_output, index, operand))


@dataclass(slots=True)
class RequestForm:
    """Form of valid requests: everything in them except tensor bytes.

    Attributes:
        bound: what the user of a validator computed from a request of this form, or None.
    """

    bound: object | None = None


class RequestValidator:
    """Validation of one model's requests, with a cache of the forms of valid ones. Thread safe.

    The arguments are those of `validate_request`.
    """

    def __init__(
        self,
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
        extension_types: ExtensionTypes = _NO_TYPES,
    ) -> None:
        self._validate = partial(validate_request, inputs=inputs, outputs=outputs, extension_types=extension_types)
        self._valid_forms: dict[CacheKey, RequestForm] = {}

    def validate(self, request: Request, *, fenced: bool = False) -> RequestForm:
        """Check a request as `validate_request` does, unless one of the same form was valid.

        Return its form: the same object for equal forms, unless it has left the cache.
        """
        if len(request.inputs) + len(request.outputs) + len(request.pools) > _MAX_PARTS:
            self._validate(request, fenced=fenced)
            return RequestForm()
        key = (fenced, _arguments_key(request.inputs), _arguments_key(request.outputs), _pools_key(request.pools))
        form = self._valid_forms.get(key)
        if form is None:
            self._validate(request, fenced=fenced)
            if len(self._valid_forms) >= _MAX_KEYS:  # bounds the memory for a client that never repeats a form
                self._valid_forms.clear()
            form = self._valid_forms[key] = RequestForm()
        return form


def _arguments_key(arguments: Sequence[RequestArgument]) -> CacheKey:
    """Return everything that the rules read of arguments."""
    # Plain tuples: the generated hash of a dataclass costs as much as a rule.
    return tuple(
        [
            (a.has_no_value, (at := a.location).pool_index, at.offset, at.length, at.padding, a.dimensions)
            for a in arguments
        ]
    )


def _pools_key(pools: Sequence[RequestMemoryPool]) -> CacheKey:
    """Return everything that the rules read of pools: their fields and which of them share a buffer, but no bytes."""
    if len(pools) > 1:
        buffers = [id(pool.buffer) if isinstance(pool, Memory) else None for pool in pools]
        return tuple([(buffers.index(b), _pool_key(pool)) for b, pool in zip(buffers, pools, strict=True)])
    return tuple(map(_pool_key, pools))


def _pool_key(pool: RequestMemoryPool) -> CacheKey:
    if isinstance(pool, Memory):
        buffer = pool.buffer
        return (pool.offset, pool.length, pool.prot, buffer.size, buffer.flags.writeable)
    if isinstance(pool, BufferToken):  # not the pool itself, which may refer to the contents of a buffer
        return (BufferToken, pool.token > 0)
    return (pool,)


def _arguments(request: Request) -> list[tuple[bool, int, RequestArgument]]:
    """Return every argument, inputs first, after whether it is an output and its index."""
    inputs = [(False, index, argument) for index, argument in enumerate(request.inputs)]
    return inputs + [(True, index, argument) for index, argument in enumerate(request.outputs)]


def _argument_name(is_output: bool, index: int, operand: Operand | None = None) -> str:
    type_ = "" if operand is None else f" ({type_name(operand.type)})"
    return f"{KINDS[is_output]} {index} of the request{type_}"


@REQUEST_RULES.forbid("V-REQARG-07")
def _overlapping_output(request: Request) -> str | None:
    last: Region | None = None
    last_output: Region | None = None
    for region in sorted(_regions(request)):
        before = last if region.is_output else last_output
        if before and before.memory == region.memory and before.end > region.start:
            return f"has {before.name} and {region.name} on the same bytes of a pool"
        last = _ending_last(last, region)
        if region.is_output:
            last_output = _ending_last(last_output, region)
    return None


@MODEL_MATCH_RULES.forbid("V-REQMODEL-01")
def _wrong_number_of_arguments(subject: ModelRequest) -> str | None:
    for kind, arguments, operands in (
        ("inputs", subject.request.inputs, subject.inputs),
        ("outputs", subject.request.outputs, subject.outputs),
    ):
        if len(arguments) != len(operands):
            return f"has {len(arguments)} {kind}, but the model has {len(operands)}"
    return None


def _regions(request: Request) -> Iterator[Region]:
    """Yield the regions of arguments that are not empty. In a pool of unknown size, no two of them overlap."""
    for is_output, index, argument in _arguments(request):
        location = argument.location
        if location.length == 0:
            continue
        pool = request.pools[location.pool_index]
        # Two pools may be windows on one buffer; equal returned pools are distinct.
        if isinstance(pool, Memory):
            memory, start = (True, id(pool.buffer)), pool.offset + location.offset
        else:
            memory, start = (False, location.pool_index), location.offset
        yield Region(memory, start, start + location.length, is_output, index)


def _ending_last(region: Region | None, other: Region) -> Region:
    return region if region and region.memory == other.memory and region.end > other.end else other
