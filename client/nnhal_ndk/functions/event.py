"""Functions of events."""

from nnhal_ndk.execution.event import NdkEvent, SyncFenceEvent, event_of
from nnhal_ndk.functions.register import ndk_function
from nnhal_ndk.objects import OBJECTS


@ndk_function("ANeuralNetworksEvent_createFromSyncFenceFd")
def _create_from_fd(descriptor: int) -> tuple[int]:
    return (OBJECTS.add(NdkEvent(SyncFenceEvent(descriptor))),)


@ndk_function("ANeuralNetworksEvent_getSyncFenceFd")
def _get_fd(event: int) -> tuple[int]:
    return (event_of(event).duplicate_descriptor(),)


@ndk_function("ANeuralNetworksEvent_wait")
def _wait(event: int) -> None:
    event_of(event).wait()


@ndk_function("ANeuralNetworksEvent_free")
def _free(event: int) -> None:
    OBJECTS.remove(event, NdkEvent).close()
