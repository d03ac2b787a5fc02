"""Executions on buffers (MEMDOM-49 to -69): SYNC, BURST and FENCED."""

from collections.abc import Callable

from nnhal.types import ErrorStatus
from tools.conformance.paths.buffers import role
from tools.conformance.suites.memdom.bench import EXECUTORS, Bench, Held, Shared, conv, expect, memdom

NONE, INVALID, FAILURE = ErrorStatus.NONE, ErrorStatus.INVALID_ARGUMENT, ErrorStatus.GENERAL_FAILURE
NEVER_GIVEN = 100

Body = Callable[[Bench, str], None]


def executed(id_: str, executors: tuple[str, ...] = EXECUTORS) -> Callable[[Body], Body]:
    """Registers a check that is made anew on each path."""

    def register(body: Body) -> Body:
        @memdom(id_)
        def each(bench: Bench) -> None:
            for path in executors:
                body(bench, path)

        return body

    return register


# ---- Tokens ---------------------------------------------------------------------------------------------


def _with_token(id_: str, token: int, *, is_output: bool) -> None:
    @executed(id_)
    def body(bench: Bench, path: str) -> None:
        shared, held = Shared(bench.z.size), Held(token)
        inputs, outputs = ([shared], [held]) if is_output else ([held], [shared])
        answer = bench.execute(path, bench.prepared(conv(bench.z)), inputs, outputs).answer
        expect(bench, id_, f"{path}, token {token}", INVALID, answer)


_with_token("MEMDOM-49", 0, is_output=False)
_with_token("MEMDOM-50", NEVER_GIVEN, is_output=False)
_with_token("MEMDOM-51", 0, is_output=True)
_with_token("MEMDOM-52", NEVER_GIVEN, is_output=True)


# ---- Roles ----------------------------------------------------------------------------------------------


@executed("MEMDOM-53")
def input_of_another_model(bench: Bench, path: str) -> None:
    """An equal model is another one."""
    one, other = bench.prepared(conv(bench.z)), bench.prepared(conv(bench.z))
    buffer = bench.buffer([one], [role(0, 0)], [role(0, 0)])
    bench.fill(buffer)
    answer = bench.execute(path, other, [Held(buffer.token)], [Shared(bench.z.size)]).answer
    expect(bench, "MEMDOM-53", f"{path}, a buffer of another model as input", INVALID, answer)


@executed("MEMDOM-54")
def output_of_another_model(bench: Bench, path: str) -> None:
    """An equal model is another one."""
    one, other = bench.prepared(conv(bench.z)), bench.prepared(conv(bench.z))
    buffer = bench.buffer([one], [role(0, 0)], [role(0, 0)])
    answer = bench.execute(path, other, [Shared(bench.z.size)], [Held(buffer.token)]).answer
    expect(bench, "MEMDOM-54", f"{path}, a buffer of another model as output", INVALID, answer)


@executed("MEMDOM-55")
def another_input(bench: Bench, path: str) -> None:
    """A role is one input, not all."""
    model, shared = bench.prepared(conv(bench.z, 2)), Shared(bench.z.size)
    buffer = bench.buffer([model], [role(0, 0)])
    bench.fill(buffer)
    answer = bench.execute(path, model, [shared, Held(buffer.token)], [shared, shared]).answer
    expect(bench, "MEMDOM-55", f"{path}, a buffer for input 0 as input 1", INVALID, answer)


@executed("MEMDOM-56")
def another_output(bench: Bench, path: str) -> None:
    """A buffer for an input is none for an output."""
    model, shared = bench.prepared(conv(bench.z, 2)), Shared(bench.z.size)
    buffer = bench.buffer([model], [role(0, 0)])
    bench.fill(buffer)
    answer = bench.execute(path, model, [shared, shared], [shared, Held(buffer.token)]).answer
    expect(bench, "MEMDOM-56", f"{path}, a buffer for input 0 as output 1", INVALID, answer)


@executed("MEMDOM-57")
def input_as_output(bench: Bench, path: str) -> None:
    """Of the same number."""
    model = bench.prepared(conv(bench.z))
    buffer = bench.buffer([model], [role(0, 0)])
    answer = bench.execute(path, model, [Shared(bench.z.size)], [Held(buffer.token)]).answer
    expect(bench, "MEMDOM-57", f"{path}, a buffer for input 0 as output 0", INVALID, answer)


@executed("MEMDOM-58")
def output_as_input(bench: Bench, path: str) -> None:
    """Of the same number."""
    model = bench.prepared(conv(bench.z))
    buffer = bench.buffer([model], (), [role(0, 0)])
    bench.fill(buffer)
    answer = bench.execute(path, model, [Held(buffer.token)], [Shared(bench.z.size)]).answer
    expect(bench, "MEMDOM-58", f"{path}, a buffer for output 0 as input 0", INVALID, answer)


# ---- State ----------------------------------------------------------------------------------------------


def _state(bench: Bench, path: str) -> None:
    """A fresh buffer as input, then as output, then as input."""
    model, shared = bench.prepared(conv(bench.z)), Shared(bench.z.size)
    buffer = bench.buffer([model], [role(0, 0)], [role(0, 0)])
    held = Held(buffer.token)
    answer = bench.execute(path, model, [held], [shared]).answer
    expect(bench, "MEMDOM-59", f"{path}, a fresh buffer as input", FAILURE, answer)
    answer = bench.execute(path, model, [shared], [held]).answer
    expect(bench, "MEMDOM-60", f"{path}, a fresh buffer as output", NONE, answer)
    answer = bench.execute(path, model, [held], [shared]).answer
    expect(bench, "MEMDOM-61", f"{path}, a buffer that an execution filled, as input", NONE, answer)


def _several_roles(bench: Bench, path: str) -> None:
    """A buffer with every role of CONV(Z, 2)."""
    model, shared = bench.prepared(conv(bench.z, 2)), Shared(bench.z.size)
    buffer = bench.buffer([model], [role(0, 0), role(0, 1)], [role(0, 0), role(0, 1)])
    held = Held(buffer.token)
    bench.fill(buffer)
    answer = bench.execute(path, model, [held, shared], [held, shared]).answer
    expect(bench, "MEMDOM-62", f"{path}, one buffer as input 0 and output 0", INVALID, answer)
    answer = bench.execute(path, model, [shared, shared], [held, held]).answer
    expect(bench, "MEMDOM-63", f"{path}, one buffer as both outputs", INVALID, answer)
    bench.fill(buffer)
    answer = bench.execute(path, model, [held, held], [shared, shared]).answer
    expect(bench, "MEMDOM-64", f"{path}, one buffer as both inputs", NONE, answer)


for _id in ("MEMDOM-59", "MEMDOM-60", "MEMDOM-61"):
    executed(_id)(_state)
for _id in ("MEMDOM-62", "MEMDOM-63", "MEMDOM-64"):
    executed(_id)(_several_roles)


# ---- Dimensions -----------------------------------------------------------------------------------------


def _dimensions(bench: Bench, path: str) -> None:
    """CONV of an open shape with a buffer of a closed one: a batch of two does not fit."""
    model = bench.prepared(conv(bench.z.open))
    buffer = bench.buffer([model], [role(0, 0)], [role(0, 0)], bench.z.shape)
    bench.fill(buffer)
    two = (2, *bench.z.shape[1:])
    shared = Shared(2 * bench.z.size, two)
    answer = bench.execute(path, model, [Held(buffer.token, two)], [shared]).answer
    expect(bench, "MEMDOM-65", f"{path}, an input of {list(two)} in a buffer", INVALID, answer)
    answer = bench.execute(path, model, [shared], [Held(buffer.token, two)]).answer
    expect(bench, "MEMDOM-66", f"{path}, an output of {list(two)} in a buffer", INVALID, answer)
    answer = bench.execute(path, model, [shared], [Held(buffer.token)]).answer
    expect(bench, "MEMDOM-67", f"{path}, an output that does not fit its buffer", FAILURE, answer)


for _id in ("MEMDOM-65", "MEMDOM-66", "MEMDOM-67"):
    executed(_id, ("SYNC", "BURST"))(_dimensions)


@executed("MEMDOM-68")
def timing(bench: Bench, path: str) -> None:
    """Every execution of a bench is looked at; here are those that end well."""
    _state(bench, path)


@executed("MEMDOM-69")
def steps(bench: Bench, path: str) -> None:
    """Likewise."""
    _several_roles(bench, path)
