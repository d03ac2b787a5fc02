"""Arguments of one run of an operation, which shape rules and kernels read by the names of its signature."""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TypeVar, cast

from nnhal.errors import HalError, general_failure
from nnhal.types import AnyArray, ErrorStatus, FusedActivationFunc, Operand, SymmPerChannelQuantParams
from nnhal_driver.graph import OperationView
from nnhal_driver.scheduling.paced_check import proceed
from nnhal_driver.validation.rank import check_shape_elements

Shape = tuple[int, ...]
Values = Sequence[AnyArray | None] | Mapping[int, AnyArray | None]
"""Values by operand index."""
T = TypeVar("T")


class OperationCall:
    """One run of one operation, with its arguments by name.

    A workload gets it. Values are read-only arrays with the dtype of the operand's type (`DTYPES`) in their shapes at
    this run. For a type of an extension the dtype is np.void of the size that the backend lists, or uint8 if it is 1.

    Args:
        view: the operation.
        values: values by operand index of the graph; None if omitted.
        memo: results that earlier runs of the same operation derived from constants.
        inferred: results of `share` that are known before the run.
        check: called between the steps of long work. It raises a HalError if the run must end; do not catch it.

    Attributes:
        reads_values: whether the value of an argument that is not constant has been read.
    """

    __slots__ = ("_memo", "_values", "check", "inferred", "reads_values", "view")

    def __init__(
        self,
        view: OperationView,
        values: Values,
        memo: dict[str, object],
        inferred: Mapping[str, object] | None = None,
        check: Callable[[], None] = proceed,
    ) -> None:
        self.view = view
        self.check = check
        self.reads_values = False
        self.inferred = dict(inferred) if inferred else {}
        self._values = values
        self._memo = memo

    def has(self, name: str) -> bool:
        """Return whether an argument is present and has a value."""
        position = self.view.positions.get(name)
        return position is not None and self._values[position] is not None

    def array(self, name: str) -> AnyArray:
        """Return the value of an argument, which may be a constant.

        Raises:
            HalError: GENERAL_FAILURE: the argument is omitted (V-RUN-01).
            KeyError: the operation has no such argument.
        """
        value = self._value(name)
        if not self.reads_values and self.view.positions[name] not in self.view.graph.constants:
            self.reads_values = True
        return value

    def shape(self, name: str) -> Shape:
        """Return the shape of an argument."""
        return self._value(name).shape

    def integer(self, name: str, default: int = 0) -> int:
        """Return the value of an INT32 scalar, or `default` if it was left out."""
        return int(cast(int, self.array(name))) if name in self.view.positions else default

    def number(self, name: str, default: float = 0.0) -> float:
        """Return the value of a FLOAT32 or FLOAT16 scalar, or `default` if it was left out."""
        return float(cast(float, self.array(name))) if name in self.view.positions else default

    def flag(self, name: str) -> bool:
        """Return the value of a BOOL scalar, or False if it was left out."""
        return name in self.view.positions and bool(self.array(name))

    def vector(self, name: str, length: int | None = None) -> list[int]:
        """Return the values of a TENSOR_INT32 of rank 1 with an element for each dimension of a tensor.

        Raises:
            HalError: GENERAL_FAILURE: the rank is not 1, or there are not `length` elements, or more than MAX_RANK.
        """
        shape = self.shape(name)
        self.require(len(shape) == 1, f"{name} has rank {len(shape)}; it must be 1")
        self.require(length in (None, shape[0]), f"{name} has {shape[0]} elements; it must have {length}")
        return self.integers(name)

    def integers(self, name: str) -> list[int]:
        """Return the elements of a TENSOR_INT32 that describes dimensions, in row-major order.

        A client may send millions of elements. A list of them would occupy the interpreter for seconds, so read larger
        arguments with `array` only.

        Raises:
            HalError: GENERAL_FAILURE: there are more than two elements for each of MAX_RANK dimensions.
        """
        check_shape_elements(prod(self.shape(name)), f"{self.view.name}: {name}")
        values: list[int] = self.array(name).reshape(-1).tolist()
        return values

    def repeated(self, name: str) -> list[str]:
        """Return the names of a repeated argument (`name:T+`), in order."""
        arguments = self.view.arguments
        assert arguments is not None
        names = (*arguments.inputs, *arguments.outputs)
        return [n for n in names if n.startswith(name) and n.removeprefix(name).isdigit()]

    def axis(self, rank: int) -> int:
        """Return the argument `axis`, counted from the start. The last dimension if it was left out.

        Raises:
            HalError: GENERAL_FAILURE: the axis is outside [-rank, rank).
        """
        axis = self.integer("axis", -1)
        self.require(-rank <= axis < rank, f"axis is {axis}; it must be in {-rank}..{rank - 1}")
        return axis % rank

    def activation(self) -> int:
        """Return the fused activation argument.

        Raises:
            HalError: GENERAL_FAILURE: the value is not a FusedActivationFunc.
        """
        value = self.integer("activation")
        self.require(0 <= value <= FusedActivationFunc.RELU6, f"activation is {value}; it must be in 0..3")
        return value

    def operand(self, name: str) -> Operand:
        """Return the operand behind an argument: type, scale, zero point."""
        return self.view.operand(name)

    def channel_quant(self, name: str) -> SymmPerChannelQuantParams | None:
        """Return the per-channel scales of an argument, or None."""
        params = self.view.operand(name).extra_params
        return params if isinstance(params, SymmPerChannelQuantParams) else None

    def memoize_constant(self, key: str, make: Callable[[], T], *names: str) -> T:
        """Return `make()`, and reuse its result in later runs if all arguments `names` are constants."""
        cached = self._memo.get(key)
        if cached is not None:
            return cast(T, cached)
        result = make()
        if all(self.view.positions[name] in self.view.graph.constants for name in names):
            if len(self._memo) > 64:  # keys may name shapes; bounds the memory for clients that keep sending new shapes
                self._memo.clear()
            self._memo[key] = result
        return result

    def share(self, key: str, make: Callable[[], T]) -> T:
        """Return `make()`, computed once per run: for results that the shape rule and the kernel both need."""
        if key not in self.inferred:
            self.inferred[key] = make()
        return cast(T, self.inferred[key])

    def require(self, condition: bool, message: str) -> None:
        """Check an `[execution]` constraint of the operation (V-RUN-03).

        Raises:
            HalError: GENERAL_FAILURE naming the operation, if `condition` is false.
        """
        if not condition:
            raise self.failure(message)

    def failure(self, message: str, rule: str = "V-RUN-03", status: int = ErrorStatus.GENERAL_FAILURE) -> HalError:
        """Return an error of this operation."""
        return HalError(status, f"{self.view.name}: {message}", rule=rule)

    def _value(self, name: str) -> AnyArray:
        value = self._values[self.view.positions[name]]
        if value is None:
            raise general_failure(f"{self.view.name}: {name} has no value", "V-RUN-01")
        return value
