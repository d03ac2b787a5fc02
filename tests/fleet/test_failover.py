"""Two services of a fleet: clients go to the best one, and go on at the other one when it dies."""

import asyncio

import numpy as np
import pytest

import nnhal
import nnhal.aio
from nnhal.client.core.cache import model_digest
from nnhal_service.peers.fleet.member import Member, model_key
from tests.concurrency import wait_until
from tests.fleet.pair import ADD, ONES, Pair, loaded


def test_a_client_goes_to_the_other_service_and_back_when_it_dies(pair: Pair) -> None:
    a, b = pair.hosts
    pair.publish(loaded(a, 50), b.record)
    with nnhal.connect(a.target, timeout=60) as device:
        assert wait_until(lambda: a.service.logged("session-placed"), 60)
        assert device._connection.members == (a.target,)
        assert device._connection.target != b.target, "it is at the private address of a worker"
        prepared = device.prepare(ADD, cache=True).result(60)
        np.testing.assert_array_equal(prepared.execute([ONES, ONES])[0], 2 * ONES)
        pair.publish(a.record, refusal="both hosts are busy")
        b.kill()
        np.testing.assert_array_equal(prepared.execute([ONES, ONES])[0], 2 * ONES)
        assert device._connection.target == a.target, "a full fleet keeps the clients that it has"
        with pytest.raises(nnhal.HalError, match=r"RESOURCE_EXHAUSTED_TRANSIENT: .*both hosts are busy"):
            nnhal.connect(a.target, timeout=60)


async def test_a_client_goes_on_when_the_only_address_that_it_was_given_is_gone(pair: Pair) -> None:
    a, b = pair.hosts
    async with nnhal.aio.connect(f"grpc://{a.target}", timeout=60) as device:
        assert device._connection.target == a.target
        prepared = await device.prepare(ADD)
        np.testing.assert_array_equal((await prepared.execute([ONES, ONES]))[0], 2 * ONES)
        pair.publish(a.record, b.record, Member("c", "c", "127.0.0.1:1"))
        assert await asyncio.to_thread(wait_until, lambda: len(device._connection.members) == 2, 60)
        assert set(device._connection.members) == {b.target, "127.0.0.1:1"}
        pair.publish()
        a.kill()
        np.testing.assert_array_equal((await prepared.execute([ONES, ONES]))[0], 2 * ONES)
        assert device._connection.members == (a.target,), "these are the addresses that b knows"


def test_needs_choose_the_service(pair: Pair) -> None:
    a, b = pair.hosts
    warm = Member(
        "b", "b", b.target, free_bytes=2**30, sessions=2, models=frozenset([model_key(model_digest(ADD).hex())])
    )
    pair.publish(a.record, warm)
    with nnhal.connect(a.target, timeout=60, model=ADD) as device:
        assert device._connection.members == (a.target,), "these are the addresses that b knows"
        pair.publish(b.record, Member("c", "c", "127.0.0.1:1"))
        assert wait_until(lambda: device._connection.members == ("127.0.0.1:1",), 60), "b tells of its new ones"
    with pytest.raises(nnhal.HalError, match=r"DEVICE_UNAVAILABLE: the fleet has no place .*has no Npu"):
        nnhal.connect(a.target, timeout=60, accelerator="Npu")
