"""Executions with buffers (MEMDOM-49 to -69) on the paths SYNC, BURST and FENCED."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nnhal.types import ErrorStatus
from nnhal_tools.conformance.paths.buffers import buffer_role
from nnhal_tools.conformance.suites.memdom.bench import (
    EXECUTORS,
    BenchArgument,
    BufferBench,
    buffer_check,
    conv_case,
    expect_status,
)

NONE, INVALID, FAILURE = ErrorStatus.NONE, ErrorStatus.INVALID_ARGUMENT, ErrorStatus.GENERAL_FAILURE
UNKNOWN_TOKEN = 100

Body = Callable[[BufferBench, str], None]


def execution_check(id_: str, executors: tuple[str, ...] = EXECUTORS) -> Callable[[Body], Body]:
    """Register a check that runs on each path."""

    def register(body: Body) -> Body:
        @buffer_check(id_)
        def each(bench: BufferBench) -> None:
            for path in executors:
                body(bench, path)

        return body

    return register


# ---- Tokens ---------------------------------------------------------------------------------------------


def _register_invalid_token(id_: str, token: int, *, is_output: bool) -> None:
    @execution_check(id_)
    def body(bench: BufferBench, path: str) -> None:
        client, buffered = BenchArgument(bench.operand.size), BenchArgument(token=token)
        inputs, outputs = ([client], [buffered]) if is_output else ([buffered], [client])
        answer = bench.execute(path, bench.prepare(conv_case(bench.operand)), inputs, outputs).outcome
        expect_status(bench, id_, f"{path}, token {token}", INVALID, answer)


_register_invalid_token("MEMDOM-49", 0, is_output=False)
_register_invalid_token("MEMDOM-50", UNKNOWN_TOKEN, is_output=False)
_register_invalid_token("MEMDOM-51", 0, is_output=True)
_register_invalid_token("MEMDOM-52", UNKNOWN_TOKEN, is_output=True)


# ---- Roles ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Misuse:
    """Use of a buffer that its roles do not allow.

    Attributes:
        inputs: the inputs of the buffer's roles.
        outputs: the outputs of its roles.
        used_as: the argument that it is used as: "input" or "output", and its index.
        operations: the number of operations of the model, which has as many inputs and outputs.
        other_model: use it with another prepared model, even an equal one.
    """

    id: str
    stimulus: str
    inputs: Sequence[int]
    outputs: Sequence[int]
    used_as: tuple[str, int]
    operations: int = 1
    other_model: bool = False


MISUSES = (
    Misuse("MEMDOM-53", "a buffer of another model as input", [0], [0], ("input", 0), other_model=True),
    Misuse("MEMDOM-54", "a buffer of another model as output", [0], [0], ("output", 0), other_model=True),
    Misuse("MEMDOM-55", "a buffer for input 0 as input 1", [0], [], ("input", 1), operations=2),
    Misuse("MEMDOM-56", "a buffer for input 0 as output 1", [0], [], ("output", 1), operations=2),
    Misuse("MEMDOM-57", "a buffer for input 0 as output 0", [0], [], ("output", 0)),
    Misuse("MEMDOM-58", "a buffer for output 0 as input 0", [], [0], ("input", 0)),
)


def _register_misuse(misuse: Misuse) -> None:
    @execution_check(misuse.id)
    def body(bench: BufferBench, path: str) -> None:
        case = conv_case(bench.operand, misuse.operations)
        model = bench.prepare(case)
        input_roles, output_roles = (
            [buffer_role(0, index) for index in indexes] for indexes in (misuse.inputs, misuse.outputs)
        )
        buffer = bench.allocate([model], input_roles, output_roles)
        bench.initialize(buffer)
        arguments: dict[str, list[BenchArgument]] = {
            kind: [BenchArgument(bench.operand.size)] * misuse.operations for kind in ("input", "output")
        }
        kind, index = misuse.used_as
        arguments[kind][index] = BenchArgument(token=buffer.token)
        user = bench.prepare(case) if misuse.other_model else model
        answer = bench.execute(path, user, arguments["input"], arguments["output"]).outcome
        expect_status(bench, misuse.id, f"{path}, {misuse.stimulus}", INVALID, answer)


for _misuse in MISUSES:
    _register_misuse(_misuse)


# ---- State ----------------------------------------------------------------------------------------------


def _check_state(bench: BufferBench, path: str) -> None:
    """Use an uninitialized buffer as an input, as an output, and again as an input."""
    model, client = bench.prepare(conv_case(bench.operand)), BenchArgument(bench.operand.size)
    buffer = bench.allocate([model], [buffer_role(0, 0)], [buffer_role(0, 0)])
    buffered = BenchArgument(token=buffer.token)
    answer = bench.execute(path, model, [buffered], [client]).outcome
    expect_status(bench, "MEMDOM-59", f"{path}, an uninitialized buffer as input", FAILURE, answer)
    answer = bench.execute(path, model, [client], [buffered]).outcome
    expect_status(bench, "MEMDOM-60", f"{path}, an uninitialized buffer as output", NONE, answer)
    answer = bench.execute(path, model, [buffered], [client]).outcome
    expect_status(bench, "MEMDOM-61", f"{path}, a buffer that an execution filled, as input", NONE, answer)


def _check_several_roles(bench: BufferBench, path: str) -> None:
    """Use a buffer with every role of CONV(Z, 2) for several arguments."""
    model, client = bench.prepare(conv_case(bench.operand, 2)), BenchArgument(bench.operand.size)
    buffer = bench.allocate([model], [buffer_role(0, 0), buffer_role(0, 1)], [buffer_role(0, 0), buffer_role(0, 1)])
    buffered = BenchArgument(token=buffer.token)
    bench.initialize(buffer)
    answer = bench.execute(path, model, [buffered, client], [buffered, client]).outcome
    expect_status(bench, "MEMDOM-62", f"{path}, one buffer as input 0 and output 0", INVALID, answer)
    answer = bench.execute(path, model, [client, client], [buffered, buffered]).outcome
    expect_status(bench, "MEMDOM-63", f"{path}, one buffer as both outputs", INVALID, answer)
    bench.initialize(buffer)
    answer = bench.execute(path, model, [buffered, buffered], [client, client]).outcome
    expect_status(bench, "MEMDOM-64", f"{path}, one buffer as both inputs", NONE, answer)


for _id in ("MEMDOM-59", "MEMDOM-60", "MEMDOM-61"):
    execution_check(_id)(_check_state)
for _id in ("MEMDOM-62", "MEMDOM-63", "MEMDOM-64"):
    execution_check(_id)(_check_several_roles)


# ---- Dimensions -----------------------------------------------------------------------------------------


def _check_dimensions(bench: BufferBench, path: str) -> None:
    """Use a buffer for a batch of one in executions of CONV with a batch of two."""
    model = bench.prepare(conv_case(bench.operand.with_unknown_batch))
    buffer = bench.allocate([model], [buffer_role(0, 0)], [buffer_role(0, 0)], bench.operand.shape)
    bench.initialize(buffer)
    two = (2, *bench.operand.shape[1:])
    client = BenchArgument(2 * bench.operand.size, two)
    answer = bench.execute(path, model, [BenchArgument(dimensions=two, token=buffer.token)], [client]).outcome
    expect_status(bench, "MEMDOM-65", f"{path}, an input of {list(two)} in a buffer", INVALID, answer)
    answer = bench.execute(path, model, [client], [BenchArgument(dimensions=two, token=buffer.token)]).outcome
    expect_status(bench, "MEMDOM-66", f"{path}, an output of {list(two)} in a buffer", INVALID, answer)
    answer = bench.execute(path, model, [client], [BenchArgument(token=buffer.token)]).outcome
    expect_status(bench, "MEMDOM-67", f"{path}, an output that does not fit its buffer", FAILURE, answer)


for _id in ("MEMDOM-65", "MEMDOM-66", "MEMDOM-67"):
    execution_check(_id, ("SYNC", "BURST"))(_check_dimensions)


@execution_check("MEMDOM-68")
def timing(bench: BufferBench, path: str) -> None:
    """Check the timing of successful executions. `BufferBench.execute` checks every execution."""
    _check_state(bench, path)


@execution_check("MEMDOM-69")
def steps(bench: BufferBench, path: str) -> None:
    """Check the steps of successful executions. `BufferBench.execute` checks every execution."""
    _check_several_roles(bench, path)
