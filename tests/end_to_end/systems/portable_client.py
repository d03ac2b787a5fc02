"""Program of a client on any system: uses each path of both clients on a service, whose address is its argument."""

import asyncio
import sys

import numpy as np

import nnhal
from nnhal.client.core.arrays import Outputs
from nnhal.errors import LinuxRequiredError
from nnhal.types import AnyArray, CacheState, Operand, OperandType, OperationType

SIZE = 2**19  # constants of this size are uploaded
EXECUTIONS = 20


def build_model(increment: float) -> nnhal.Model:
    """Return a model that adds a number to its input."""
    builder = nnhal.ModelBuilder()
    x = builder.input(OperandType.TENSOR_FLOAT32, [SIZE], name="x")
    y = Operand(OperandType.TENSOR_FLOAT32, (SIZE,))
    builder.output(builder.add(OperationType.ADD, x, np.full(SIZE, increment, np.float32), 0, output=y), name="y")
    return builder.build()


def array(number: float) -> AnyArray:
    """Return an input whose values are all the same."""
    return np.full(SIZE, number, np.float32)


def check(outputs: Outputs, expected: float) -> None:
    """Check the output of an execution."""
    np.testing.assert_array_equal(outputs["y"], array(expected))


def use_sync_client(target: str) -> None:
    """Prepare, execute, and use the cache, bursts, buffers, and executions in the background."""
    with nnhal.connect(target) as device:
        prepared = device.prepare(build_model(1), cache=True).result()
        again = device.prepare(build_model(1), cache=True).result()
        assert again.cache.state == CacheState.HIT, again.cache
        for number in range(EXECUTIONS):
            check(prepared.execute([array(number)]), number + 1)
        with prepared.burst() as burst:
            for number in range(EXECUTIONS):
                check(burst.execute([array(number)]), number + 1)
            for number, pending in enumerate([burst.submit([array(number)]) for number in range(EXECUTIONS)]):
                check(pending.result(), number + 1)
        check(prepared.execute_fenced([array(1)]).result(), 2)
        assert prepared.profile([array(1)]).transport == "gRPC"
        assert [info.name for info in prepared.inputs] == ["x"]
        assert device.backends()


async def use_aio_client(target: str) -> None:
    """Do the same in asyncio."""
    async with nnhal.aio.connect(target) as device:
        prepared = await device.prepare(build_model(2), cache=True)
        for number in range(EXECUTIONS):
            check(await prepared.execute([array(number)]), number + 2)
        async with prepared.burst() as burst:
            results = await asyncio.gather(*(burst.execute([array(number)]) for number in range(EXECUTIONS)))
        for number, outputs in enumerate(results):
            check(outputs, number + 2)


def expect_no_embedded_service() -> None:
    """Check that a service on this machine is refused with the reason."""
    for connect in (nnhal.connect, lambda: asyncio.run(_connect_aio())):
        try:
            connect()
        except LinuxRequiredError as error:
            print(error.reason)
        else:
            raise AssertionError("a service has started")


async def _connect_aio() -> None:
    await nnhal.aio.connect()


if __name__ == "__main__":
    use_sync_client(sys.argv[1])
    asyncio.run(use_aio_client(sys.argv[1]))
    expect_no_embedded_service()
    loaded = {"nnhal.client.shm.channel", "nnhal.client.shm.data_socket", "nnhal.shm.spin_wait"} & set(sys.modules)
    assert not loaded, loaded
