"""Choice of a replica for an execution."""

from random import Random
from typing import Any

from nnhal.client.replicas.replica_set import Replica, Workload, choose_replica


def replica(outstanding: int = 0) -> Replica[Any, None]:
    replica: Replica[Any, None] = Replica(None, None)
    replica.workload.outstanding = outstanding
    return replica


def test_the_better_of_two_is_chosen() -> None:
    busy, idle = replica(5), replica(1)
    assert all(choose_replica([busy, idle], Random(seed)) is idle for seed in range(20))


def test_all_replicas_get_work_and_the_worst_gets_none() -> None:
    replicas = [replica(), replica(), replica(), replica(9)]
    chosen = {id(choose_replica(replicas, Random(seed))) for seed in range(100)}
    assert chosen == {id(one) for one in replicas[:3]}


def test_replicas_to_avoid() -> None:
    first, second = replica(9), replica()
    assert choose_replica([first, second], Random(1), [second]) is first
    assert choose_replica([first, second], Random(1), [first, second]) is None


def test_the_expected_time_grows_with_the_work() -> None:
    workload = Workload()
    assert workload.expected_s == 0
    workload.end(workload.begin(), 0.5)
    assert workload.expected_s == 0.5
    workload.begin()
    assert workload.expected_s == 1.0
    workload.end(workload.begin(), 0.6)
    assert (workload.outstanding, workload.expected_s) == (1, 0.6), "0.3 s for each of the two"
    workload.end(1, None)
    assert (workload.outstanding, workload.expected_s) == (0, 0.3)
