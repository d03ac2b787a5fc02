"""Executions with buffers (MEMDOM-49 to -69) on the paths SYNC, BURST and FENCED."""

from collections.abc import Callable

from nnhal.types import ErrorStatus
from nnhal_tools.conformance.paths.buffers import buffer_role
from nnhal_tools.conformance.suites.memdom.bench import (
    EXECUTORS,
    BufferArgument,
    BufferBench,
    ClientArgument,
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
        client, buffered = ClientArgument(bench.operand.size), BufferArgument(token)
        inputs, outputs = ([client], [buffered]) if is_output else ([buffered], [client])
        answer = bench.execute(path, bench.prepare(conv_case(bench.operand)), inputs, outputs).outcome
        expect_status(bench, id_, f"{path}, token {token}", INVALID, answer)


_register_invalid_token("MEMDOM-49", 0, is_output=False)
_register_invalid_token("MEMDOM-50", UNKNOWN_TOKEN, is_output=False)
_register_invalid_token("MEMDOM-51", 0, is_output=True)
_register_invalid_token("MEMDOM-52", UNKNOWN_TOKEN, is_output=True)


# ---- Roles ----------------------------------------------------------------------------------------------


@execution_check("MEMDOM-53")
def input_of_another_model(bench: BufferBench, path: str) -> None:
    """Check that a buffer is rejected as an input of another prepared model, even an equal one."""
    owner, other = bench.prepare(conv_case(bench.operand)), bench.prepare(conv_case(bench.operand))
    buffer = bench.allocate([owner], [buffer_role(0, 0)], [buffer_role(0, 0)])
    bench.initialize(buffer)
    answer = bench.execute(path, other, [BufferArgument(buffer.token)], [ClientArgument(bench.operand.size)]).outcome
    expect_status(bench, "MEMDOM-53", f"{path}, a buffer of another model as input", INVALID, answer)


@execution_check("MEMDOM-54")
def output_of_another_model(bench: BufferBench, path: str) -> None:
    """Check that a buffer is rejected as an output of another prepared model, even an equal one."""
    owner, other = bench.prepare(conv_case(bench.operand)), bench.prepare(conv_case(bench.operand))
    buffer = bench.allocate([owner], [buffer_role(0, 0)], [buffer_role(0, 0)])
    answer = bench.execute(path, other, [ClientArgument(bench.operand.size)], [BufferArgument(buffer.token)]).outcome
    expect_status(bench, "MEMDOM-54", f"{path}, a buffer of another model as output", INVALID, answer)


@execution_check("MEMDOM-55")
def wrong_input(bench: BufferBench, path: str) -> None:
    """Check that a buffer for one input is rejected as another input."""
    model, client = bench.prepare(conv_case(bench.operand, 2)), ClientArgument(bench.operand.size)
    buffer = bench.allocate([model], [buffer_role(0, 0)])
    bench.initialize(buffer)
    answer = bench.execute(path, model, [client, BufferArgument(buffer.token)], [client, client]).outcome
    expect_status(bench, "MEMDOM-55", f"{path}, a buffer for input 0 as input 1", INVALID, answer)


@execution_check("MEMDOM-56")
def wrong_output(bench: BufferBench, path: str) -> None:
    """Check that a buffer for an input is rejected as an output of another index."""
    model, client = bench.prepare(conv_case(bench.operand, 2)), ClientArgument(bench.operand.size)
    buffer = bench.allocate([model], [buffer_role(0, 0)])
    bench.initialize(buffer)
    answer = bench.execute(path, model, [client, client], [client, BufferArgument(buffer.token)]).outcome
    expect_status(bench, "MEMDOM-56", f"{path}, a buffer for input 0 as output 1", INVALID, answer)


@execution_check("MEMDOM-57")
def input_as_output(bench: BufferBench, path: str) -> None:
    """Check that a buffer for an input is rejected as the output of the same index."""
    model = bench.prepare(conv_case(bench.operand))
    buffer = bench.allocate([model], [buffer_role(0, 0)])
    answer = bench.execute(path, model, [ClientArgument(bench.operand.size)], [BufferArgument(buffer.token)]).outcome
    expect_status(bench, "MEMDOM-57", f"{path}, a buffer for input 0 as output 0", INVALID, answer)


@execution_check("MEMDOM-58")
def output_as_input(bench: BufferBench, path: str) -> None:
    """Check that a buffer for an output is rejected as the input of the same index."""
    model = bench.prepare(conv_case(bench.operand))
    buffer = bench.allocate([model], (), [buffer_role(0, 0)])
    bench.initialize(buffer)
    answer = bench.execute(path, model, [BufferArgument(buffer.token)], [ClientArgument(bench.operand.size)]).outcome
    expect_status(bench, "MEMDOM-58", f"{path}, a buffer for output 0 as input 0", INVALID, answer)


# ---- State ----------------------------------------------------------------------------------------------


def _check_state(bench: BufferBench, path: str) -> None:
    """Use an uninitialized buffer as an input, as an output, and again as an input."""
    model, client = bench.prepare(conv_case(bench.operand)), ClientArgument(bench.operand.size)
    buffer = bench.allocate([model], [buffer_role(0, 0)], [buffer_role(0, 0)])
    buffered = BufferArgument(buffer.token)
    answer = bench.execute(path, model, [buffered], [client]).outcome
    expect_status(bench, "MEMDOM-59", f"{path}, an uninitialized buffer as input", FAILURE, answer)
    answer = bench.execute(path, model, [client], [buffered]).outcome
    expect_status(bench, "MEMDOM-60", f"{path}, an uninitialized buffer as output", NONE, answer)
    answer = bench.execute(path, model, [buffered], [client]).outcome
    expect_status(bench, "MEMDOM-61", f"{path}, a buffer that an execution filled, as input", NONE, answer)


def _check_several_roles(bench: BufferBench, path: str) -> None:
    """Use a buffer with every role of CONV(Z, 2) for several arguments."""
    model, client = bench.prepare(conv_case(bench.operand, 2)), ClientArgument(bench.operand.size)
    buffer = bench.allocate([model], [buffer_role(0, 0), buffer_role(0, 1)], [buffer_role(0, 0), buffer_role(0, 1)])
    buffered = BufferArgument(buffer.token)
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
    client = ClientArgument(2 * bench.operand.size, two)
    answer = bench.execute(path, model, [BufferArgument(buffer.token, two)], [client]).outcome
    expect_status(bench, "MEMDOM-65", f"{path}, an input of {list(two)} in a buffer", INVALID, answer)
    answer = bench.execute(path, model, [client], [BufferArgument(buffer.token, two)]).outcome
    expect_status(bench, "MEMDOM-66", f"{path}, an output of {list(two)} in a buffer", INVALID, answer)
    answer = bench.execute(path, model, [client], [BufferArgument(buffer.token)]).outcome
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
