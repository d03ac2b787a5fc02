"""Names and versions of a repository, as one worker knows them."""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

from nnhal_service.repository.model_folder import FoundFile, FoundModel
from nnhal_service.repository.model_loader import VersionFiles
from nnhal_service.repository.served_model import ServedModel
from nnhal_service.repository.shared_choices import NO_CHOICE, Choice


@dataclass(eq=False, slots=True)
class NamedVersion:
    """A version of a model. The repository guards it with its lock.

    Attributes:
        source: its files, as they were when the folder was scanned last.
        served: the model in memory, perhaps from earlier contents of the files; None until it is loaded.
        failure: why the current files are not loaded, or "".
        is_settled: whether the files have stayed the same for a while, so that they are probably complete.
        is_checked: whether the current files were imported or loaded, or that has failed.
        is_pinned: whether a client has asked for it by its number.
        loading: result of the load in progress; None if there is none.
    """

    source: VersionFiles
    served: ServedModel | None = None
    failure: str = ""
    is_settled: bool = True
    is_checked: bool = False
    is_pinned: bool = False
    loading: "Future[ServedModel] | None" = None

    @property
    def is_current(self) -> bool:
        """True if the model in memory is that of the current files."""
        return self.served is not None and self.served.marks == self.source.marks

    @property
    def is_usable(self) -> bool:
        """True if it is in memory, or may be loaded."""
        return self.served is not None or not self.failure


@dataclass(eq=False, slots=True)
class NamedModel:
    """A name. The repository guards it with its lock.

    Attributes:
        problem: why no version can be loaded, or "".
        delays: why files are not used, as in `FoundModel`.
        config: the file of its options that `is_warm` comes from; None until it is read.
        is_warm: whether it is loaded before a client uses it.
        current: what clients get that name no version; None until one is loaded.
        choice: the last choice of an operator or client that was carried out.
    """

    name: str
    versions: dict[int, NamedVersion] = field(default_factory=dict)
    problem: str = ""
    delays: Mapping[int, str] = field(default_factory=dict)
    config: FoundFile | None = None
    is_warm: bool = False
    current: ServedModel | None = None
    choice: Choice = NO_CHOICE

    def newest_first(self) -> Iterator[NamedVersion]:
        """Yield the versions in falling order."""
        for number in sorted(self.versions, reverse=True):
            yield self.versions[number]

    def update(self, found: FoundModel, *, is_first: bool) -> None:
        """Note the files that a scan has found. Those of the first scan are taken as complete."""
        self.problem, self.delays = found.problem, found.delays
        for number in self.versions.keys() - found.versions.keys():
            del self.versions[number]
        for number, file in found.versions.items():
            source = VersionFiles(self.name, number, file, found.config)
            version = self.versions.setdefault(number, NamedVersion(source, is_settled=is_first))
            if version.source.marks == source.marks:
                version.is_settled = True
            else:
                version.source, version.failure, version.is_checked, version.is_settled = source, "", False, False

    def publish(self) -> None:
        """Choose what clients get that name no version: the newest usable one, once it is in memory.

        Until then, they get what they got before, or if that is gone, the newest one in memory. If they got none, the
        next call loads the newest one, although clients may have asked for others by their number. Those stay in
        memory, and others are released.
        """
        in_memory = [version for version in self.newest_first() if version.served is not None]
        newest = next((version for version in self.newest_first() if version.is_usable), None)
        before = None if self.current is None else self.versions.get(self.current.version)
        others = () if self.current is None else (before, *in_memory)
        chosen = next((each for each in (newest, *others) if each is not None and each.served), None)
        self.current = None if chosen is None else chosen.served
        if chosen is newest:
            for version in in_memory:
                if version is not chosen and not version.is_pinned:
                    version.served = None

    def wanted(self) -> Iterator[NamedVersion]:
        """Yield the versions to load: the newest usable one of a name that is warm or in use, and those by number."""
        newest = next((version for version in self.newest_first() if version.is_usable), None)
        for version in self.newest_first():
            is_wanted = version is newest and (self.is_warm or self.current is not None)
            if (is_wanted or version.served is not None) and not version.is_current and not version.failure:
                yield version

    def unchecked(self) -> Iterator[NamedVersion]:
        """Yield the versions that were neither loaded nor checked."""
        yield from (each for each in self.versions.values() if not (each.is_checked or each.served or each.failure))

    def carry_out(self, choice: Choice) -> None:
        """Carry out a choice: release the models in memory, or allow another attempt to load them."""
        self.choice = choice
        for version in self.versions.values():
            version.failure, version.is_checked, version.is_settled = "", False, True
            if choice.is_unloaded:
                version.served = None

    def holds(self, version: NamedVersion) -> bool:
        """Return whether a version is still one of the name, and is to be served."""
        return self.versions.get(version.source.version) is version and not self.choice.is_unloaded
