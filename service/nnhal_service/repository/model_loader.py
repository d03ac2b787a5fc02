"""Loader of models: reads a file, imports it, and prepares it on its device, from the cache if possible."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from queue import SimpleQueue
from typing import NamedTuple

from nnhal.client.core.cache import PreparationSpec, stored_entry
from nnhal.errors import HalError, exception_text
from nnhal.tflite.errors import TfliteError
from nnhal.tflite.import_model import import_model
from nnhal.tflite.memory import reserving
from nnhal.tflite.report import ImportReport
from nnhal.types import Bytes, CacheState, ErrorStatus, ExecutionPreference, Model, Priority, Subgraph
from nnhal_driver.execution.prepared_model import PreparedModel
from nnhal_driver.preparation.launch import DeviceCall, GivenModel, LaunchOptions, PreparationLaunch
from nnhal_driver.preparation.outcome import Outcome
from nnhal_driver.scheduling.deadline import Deadline, now_ns
from nnhal_service.identity.digests import scoped_digest
from nnhal_service.log import event
from nnhal_service.model_cache.cache_arguments import CacheArguments, PendingSave
from nnhal_service.repository.batching import batched_model
from nnhal_service.repository.model_config import ModelConfig
from nnhal_service.repository.model_folder import (
    FoundFile,
    Mark,
    ModelFolder,
    UnusableFileError,
    VanishedFileError,
)
from nnhal_service.repository.served_model import ServedModel, tensor_specs
from nnhal_service.serving.devices import Devices
from nnhal_service.sessions.memory_quota import MemoryQuota
from nnhal_service.sessions.session import Session

_NO_GRAPH = Subgraph((), (), (), ())
_NO_SHAPES: Mapping[str, tuple[int, ...]] = {}
_LASTING = (ErrorStatus.INVALID_ARGUMENT, ErrorStatus.GENERAL_FAILURE, ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT)


class ModelLoadError(Exception):
    """A model that cannot be loaded, with the reason.

    Attributes:
        is_lasting: whether a later attempt with the same files would fail as well.
        has_vanished: whether a file is no longer there.
    """

    def __init__(self, reason: str, *, is_lasting: bool = True, has_vanished: bool = False) -> None:
        super().__init__(reason)
        self.is_lasting = is_lasting
        self.has_vanished = has_vanished


class VersionFiles(NamedTuple):
    """Files of one version of a model."""

    name: str
    version: int
    file: FoundFile
    config: FoundFile

    @property
    def label(self) -> str:
        """Name and version, for lists and metrics."""
        return f"{self.name}/{self.version}"

    @property
    def marks(self) -> tuple[Mark, Mark]:
        """Numbers that change with the files."""
        return self.file.mark, self.config.mark


class _ReadModel(NamedTuple):
    """An imported file.

    Attributes:
        mark: its numbers when it was read.
        data: its contents.
    """

    config: ModelConfig
    model: Model
    report: ImportReport
    mark: Mark
    data: Bytes


@dataclass(frozen=True, slots=True)
class ModelLoader:
    """Loads the models of a folder.

    Attributes:
        owner: counts the memory of the models, and owns their entries in the cache.
    """

    folder: ModelFolder
    devices: Devices
    cache: CacheArguments
    quota: MemoryQuota
    owner: Session

    def is_warm(self, config: FoundFile) -> bool:
        """Return whether a configuration, if it is valid, says that its model is loaded before a client uses it."""
        try:
            return self.folder.read_config(config).warm
        except UnusableFileError:
            return False

    def check(self, source: VersionFiles) -> None:
        """Import a model without preparing it.

        Raises:
            ModelLoadError: it cannot be loaded.
        """
        with _load_errors():
            self._read(source)

    def check_contents(self, config: ModelConfig, data: Bytes) -> None:
        """Import the contents of a file with a configuration.

        Raises:
            ModelLoadError: they cannot be loaded.
        """
        with _load_errors():
            self.devices.get(config.device)
            self._import(config, data)

    def load(self, source: VersionFiles) -> ServedModel:
        """Load a model, and log how.

        Raises:
            ModelLoadError: it cannot be loaded.
        """
        started = time.perf_counter()
        with _load_errors():
            read = self._read(source)
            outcome = self._prepare(read.config, read.model, source.label)
            prepared = _prepared_model(outcome)
            if read.config.max_batch > 1:
                prepared = self._batched(read, prepared, source.label)
        served = _served(source, read, replace(prepared, name=source.label))
        cache = CacheState(outcome.cache.state).name.lower()
        ms = (time.perf_counter() - started) * 1e3
        event("model-loaded", model=source.name, version=source.version, cache=cache, ms=ms)
        return served

    def _read(self, source: VersionFiles) -> _ReadModel:
        config = self.folder.read_config(source.config)
        self.devices.get(config.device)
        data, mark = self.folder.read(source.file, config.sha256.get(source.version, ""))
        return _ReadModel(config, *self._import(config, data), mark, data)

    def _import(
        self, config: ModelConfig, data: Bytes, shapes: Mapping[str, tuple[int, ...]] = _NO_SHAPES
    ) -> tuple[Model, ImportReport]:
        subgraph = 0 if config.signature is None else config.signature
        with reserving(partial(self.quota.reserve, self.owner, subject="the import")):
            model, report = import_model(data, extension=True, shapes=shapes, subgraph=subgraph)
        if model is None:
            raise TfliteError("; ".join(report.refusals()))
        return model, report

    def _batched(self, read: _ReadModel, single: PreparedModel, label: str) -> PreparedModel:
        """Return a model whose executions may join."""
        if read.model.states:
            raise UnusableFileError("option max_batch: the model has states")

        def prepare(shapes: Mapping[str, tuple[int, ...]]) -> PreparedModel:
            model, _ = self._import(read.config, read.data, shapes)
            return _prepared_model(self._prepare(read.config, model, label))

        return batched_model(single, read.config, read.model.input_names, prepare)

    def _prepare(self, config: ModelConfig, model: Model, label: str) -> Outcome:
        """Prepare a model like `Device.prepare` of a client that uses the cache."""
        device = self.devices.get(config.device)
        options = ExecutionPreference[config.preference], Priority[config.priority]
        spec = PreparationSpec.of(model, device.name, *options, None)
        entry = stored_entry(spec.token_for(device.get_version_string()), spec.digest)
        with self.cache.open_for_loading(device, self.owner, entry, name=label) as source:
            outcomes: SimpleQueue[Outcome] = SimpleQueue()
            launch = source.reporting_damage(outcomes.put)
            loaded = _outcome(outcomes, lambda: device.prepare_model_from_cache(launch, source.files, self._call()))
        if loaded.prepared_model is not None:
            return loaded
        save = PendingSave(self.cache, device, self.owner, label)
        given = GivenModel(model, scoped_digest(self.owner.identity, spec.digest), save.open(entry))
        preparation = PreparationLaunch(given, save.committing(outcomes.put), self._call(), LaunchOptions(*options))
        return _outcome(outcomes, lambda: device.prepare_model(preparation))

    def _call(self) -> DeviceCall:
        deadline = Deadline(now_ns() + self.cache.limits["preparation_seconds"] * 10**9)
        reserve = partial(self.quota.reserve, self.owner, subject="the model")
        return DeviceCall(deadline, self.owner.owner, reserve=reserve)


def _prepared_model(outcome: Outcome) -> PreparedModel:
    if outcome.prepared_model is None:
        raise HalError(outcome.status, outcome.reason)
    return outcome.prepared_model


def _outcome(outcomes: "SimpleQueue[Outcome]", launch: Callable[[], None]) -> Outcome:
    """Return the outcome of a preparation, or of its failed launch."""
    with suppress(HalError):  # the callback has it, too
        launch()
    return outcomes.get()


@contextmanager
def _load_errors() -> Iterator[None]:
    """Turn what goes wrong in the body into a ModelLoadError."""
    try:
        yield
    except VanishedFileError as error:
        raise ModelLoadError(str(error), is_lasting=False, has_vanished=True) from error
    except (UnusableFileError, TfliteError) as error:
        raise ModelLoadError(str(error)) from error
    except HalError as error:
        raise ModelLoadError(error.reason, is_lasting=error.status in _LASTING) from error
    except MemoryError:
        raise ModelLoadError("there is not enough memory", is_lasting=False) from None
    except Exception as error:  # a file that confuses the import must not end the thread that loads
        raise ModelLoadError(f"the import failed: {exception_text(error)}") from error


def _served(source: VersionFiles, read: _ReadModel, prepared: PreparedModel) -> ServedModel:
    model, graph = read.model, read.report.graph
    count = len(model.states)
    inputs, outputs = (
        tensor_specs(names[: len(names) - count], [graph.tensors[i] for i in indexes], operands, model)
        for names, indexes, operands in (
            (model.input_names, graph.inputs, prepared.inputs),
            (model.output_names, graph.outputs, prepared.outputs),
        )
    )
    described = replace(model, main=_NO_GRAPH, referenced=(), operand_values=b"", pools=())
    marks = read.mark, source.config.mark
    return ServedModel(source.name, source.version, read.config, described, prepared, inputs, outputs, marks)
