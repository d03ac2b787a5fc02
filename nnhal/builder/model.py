"""The model while it is built: main, the subgraphs that IF and WHILE run, and extensions."""

import re
from dataclasses import dataclass
from types import TracebackType

from nnhal.builder.graph import GraphBuilder, Shared
from nnhal.errors import invalid_argument
from nnhal.types import ExtensionNameAndPrefix, Model

_MAX_PREFIX = 2**15 - 1
_MAX_ID = 2**16 - 1


@dataclass(frozen=True)
class Extension:
    """An extension in a model: its types and operations, by their ids in the extension."""

    name: str
    prefix: int

    def operand_type(self, id_: int) -> int:
        """The number of an operand type. `id_`: 0 to 65535."""
        return self._number(id_)

    def operation_type(self, id_: int) -> int:
        """The number of an operation type. `id_`: 0 to 65535."""
        return self._number(id_)

    def _number(self, id_: int) -> int:
        if not 0 <= id_ <= _MAX_ID:
            raise invalid_argument(f"id {id_} of extension {self.name}: ids are 0 to {_MAX_ID}")
        return self.prefix << 16 | id_


class SubgraphBuilder(GraphBuilder):
    """A referenced subgraph: build it in a `with` block, then give it to IF or WHILE."""

    def __enter__(self) -> "SubgraphBuilder":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._built()
            self._complete = True


class ModelBuilder(GraphBuilder):
    """A model that is being built; by itself, its main subgraph. See `nnhal.builder`.

    Args:
        relaxed: TENSOR_FLOAT32 may be computed with the range and precision of float16.
    """

    def __init__(self, *, relaxed: bool = False) -> None:
        super().__init__(Shared(), "main")
        self._relaxed = relaxed

    def subgraph(self) -> SubgraphBuilder:
        """Begins a subgraph for IF or WHILE: `with b.subgraph() as then: ...`."""
        made = SubgraphBuilder(self._shared, f"referenced subgraph {len(self._shared.referenced)}")
        self._shared.referenced.append(made)
        return made

    def extension(self, name: str) -> Extension:
        """An extension by its name, e.g. "org.example.x"; asked again, the same.

        Raises:
            HalError: INVALID_ARGUMENT: it is no name of an extension (V-EXT-01, V-EXT-02).
        """
        if not re.fullmatch(r"[a-z0-9._]+", name):
            reason = f"extension {name!r} has letters that no name has; names consist of a-z, 0-9, '.' and '_'"
            raise invalid_argument(reason, "V-EXT-01")
        if "." not in name:
            reason = f"extension {name!r} has no period; names are like org.example.name"
            raise invalid_argument(reason, "V-EXT-02")
        prefixes = self._shared.prefixes
        return Extension(name, prefixes.setdefault(name, len(prefixes) + 1))

    def build(self) -> Model:
        """The model.

        Raises:
            HalError: INVALID_ARGUMENT: something is missing: operations, outputs, the end of a subgraph, or some names.
        """
        main = self._built()
        for graph in self._shared.referenced:
            if not graph._complete:
                raise invalid_argument(f"{graph.place} is not complete: end its `with` block first")
        constants = self._shared.constants
        return Model(
            main,
            tuple(graph._built() for graph in self._shared.referenced),
            constants.operand_values,
            constants.pools,
            self._relaxed,
            tuple(ExtensionNameAndPrefix(name, prefix) for name, prefix in self._shared.prefixes.items()),
            _names("input", [ref.name for ref in self._inputs]),
            _names("output", [name for _, name in self._outputs]),
        )


def _names(kind: str, names: list[str]) -> tuple[str, ...]:
    """All names, or none where nothing has one."""
    if any(names) and "" in names:
        named = next(i for i, name in enumerate(names) if name)
        reason = f"{kind} {names.index('')} has no name, but {kind} {named} has: name all or none"
        raise invalid_argument(reason)
    return tuple(names) if any(names) else ()
