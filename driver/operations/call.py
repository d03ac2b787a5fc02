"""One run of one operation: its arguments by the names of the signature. Shape rules and kernels read a `Call`."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar, cast

from driver.graph import OperationView
from nnhal.errors import HalError, general_failure
from nnhal.types import AnyArray, ErrorStatus, FusedActivationFunc, Operand, SymmPerChannelQuantParams

Shape = tuple[int, ...]
Values = Sequence[AnyArray | None] | Mapping[int, AnyArray | None]
"""By operand index."""
T = TypeVar("T")


class Call:
    """The arguments of one run.

    Args:
        view: the operation.
        values: by operand index of its graph: the value, or None for one that is omitted.
        memo: what earlier runs of the same operation derived from constants.
        findings: what is known from `shared` before the run.
    """

    __slots__ = ("_memo", "_values", "findings", "reads_values", "view")

    def __init__(
        self,
        view: OperationView,
        values: Values,
        memo: dict[str, object],
        findings: Mapping[str, object] | None = None,
    ) -> None:
        self.view = view
        self.reads_values = False
        self.findings = dict(findings) if findings else {}
        self._values = values
        self._memo = memo

    def has(self, name: str) -> bool:
        """Whether an argument is given and has a value."""
        position = self.view.positions.get(name)
        return position is not None and self._values[position] is not None

    def array(self, name: str) -> AnyArray:
        """The value of an argument.

        Raises:
            HalError: GENERAL_FAILURE, the argument is omitted (V-RUN-01).
        """
        value = self._value(name)
        if not self.reads_values and self.view.positions[name] not in self.view.graph.constants:
            self.reads_values = True
        return value

    def shape(self, name: str) -> Shape:
        """The shape of an argument."""
        return self._value(name).shape

    def integer(self, name: str, default: int = 0) -> int:
        """The value of an INT32 scalar, or `default` when it was left out."""
        return int(cast(int, self.array(name))) if name in self.view.positions else default

    def number(self, name: str, default: float = 0.0) -> float:
        """The value of a FLOAT32 or FLOAT16 scalar, or `default` when it was left out."""
        return float(cast(float, self.array(name))) if name in self.view.positions else default

    def flag(self, name: str) -> bool:
        """The value of a BOOL scalar; False when it was left out."""
        return name in self.view.positions and bool(self.array(name))

    def vector(self, name: str, length: int | None = None) -> list[int]:
        """The values of a TENSOR_INT32 of rank 1.

        Raises:
            HalError: GENERAL_FAILURE: it has another rank, or not `length` elements.
        """
        shape = self.shape(name)
        self.require(len(shape) == 1, f"{name} has rank {len(shape)}; it must be 1")
        self.require(length in (None, shape[0]), f"{name} has {shape[0]} elements; it must have {length}")
        return [int(value) for value in self.array(name)]

    def repeated(self, name: str) -> list[str]:
        """The names of a repeated argument (`name:T+`), in order."""
        arguments = self.view.arguments
        assert arguments is not None
        names = (*arguments.inputs, *arguments.outputs)
        return [each for each in names if each.startswith(name) and each.removeprefix(name).isdigit()]

    def axis(self, rank: int, default: int = -1) -> int:
        """The argument `axis`, counted from the start.

        Raises:
            HalError: GENERAL_FAILURE: it is outside [-rank, rank).
        """
        axis = self.integer("axis", default)
        self.require(-rank <= axis < rank, f"axis is {axis}; it must be in {-rank}..{rank - 1}")
        return axis % rank

    def activation(self) -> int:
        """The fused activation argument.

        Raises:
            HalError: GENERAL_FAILURE: it is none of FusedActivationFunc.
        """
        value = self.integer("activation")
        self.require(0 <= value <= FusedActivationFunc.RELU6, f"activation is {value}; it must be in 0..3")
        return value

    def operand(self, name: str) -> Operand:
        """The operand behind an argument: type, scale, zero point."""
        return self.view.operand(name)

    def channel_quant(self, name: str) -> SymmPerChannelQuantParams | None:
        """Per-channel scales of an argument, or None."""
        params = self.view.operand(name).extra_params
        return params if isinstance(params, SymmPerChannelQuantParams) else None

    def once(self, key: str, make: Callable[[], T], *names: str) -> T:
        """`make()`, kept for later runs where all of `names` are constants."""
        kept = self._memo.get(key)
        if kept is not None:
            return cast(T, kept)
        made = make()
        if all(self.view.positions[name] in self.view.graph.constants for name in names):
            if len(self._memo) > 64:  # keys may name shapes: a client that sends ever new ones must not fill the memory
                self._memo.clear()
            self._memo[key] = made
        return made

    def shared(self, key: str, make: Callable[[], T]) -> T:
        """`make()`, worked out once in this run: for what the shape rule and the kernel both need."""
        if key not in self.findings:
            self.findings[key] = make()
        return cast(T, self.findings[key])

    def require(self, condition: bool, complaint: str) -> None:
        """Holds an `[execution]` constraint of the operation (V-RUN-03).

        Raises:
            HalError: GENERAL_FAILURE naming the operation, when `condition` is false.
        """
        if not condition:
            raise self.failure(complaint)

    def failure(self, complaint: str, rule: str = "V-RUN-03", status: int = ErrorStatus.GENERAL_FAILURE) -> HalError:
        """An error of this operation."""
        return HalError(status, f"{self.view.name}: {complaint}", rule=rule)

    def _value(self, name: str) -> AnyArray:
        value = self._values[self.view.positions[name]]
        if value is None:
            raise general_failure(f"{self.view.name}: {name} has no value", "V-RUN-01")
        return value
