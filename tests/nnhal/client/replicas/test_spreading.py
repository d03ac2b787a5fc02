"""Choice of a replica for an execution."""

from random import Random

from nnhal.client.replicas.spreading import Workload, choose_replica


class One:
    """A replica."""

    def __init__(self, outstanding: int = 0) -> None:
        self.workload = Workload()
        self.workload.outstanding = outstanding


def test_the_better_of_two_is_chosen() -> None:
    busy, idle = One(5), One(1)
    assert all(choose_replica([busy, idle], Random(seed)) is idle for seed in range(20))


def test_all_replicas_get_work_and_the_worst_gets_none() -> None:
    replicas = [One(), One(), One(), One(9)]
    chosen = {id(choose_replica(replicas, Random(seed))) for seed in range(100)}
    assert chosen == {id(replica) for replica in replicas[:3]}


def test_replicas_to_avoid() -> None:
    first, second = One(9), One()
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
