"""Builders of models, of the subgraphs that IF and WHILE run, and of extension types."""

from dataclasses import dataclass
from types import TracebackType

from nnhal.builder.graph import GraphBuilder, SharedState
from nnhal.errors import invalid_argument
from nnhal.rules.extension import NAME_RULES
from nnhal.types import ExtensionNameAndPrefix, Model

_MAX_ID = 2**16 - 1


@dataclass(frozen=True)
class ModelExtension:
    """Operand and operation types of an extension in a model."""

    name: str
    prefix: int

    def operand_type(self, id_: int) -> int:
        """Return the number of an operand type. `id_`: 0 to 65535."""
        return self._number(id_)

    def operation_type(self, id_: int) -> int:
        """Return the number of an operation type. `id_`: 0 to 65535."""
        return self._number(id_)

    def _number(self, id_: int) -> int:
        if not 0 <= id_ <= _MAX_ID:
            raise invalid_argument(f"id {id_} of extension {self.name}: ids are 0 to {_MAX_ID}")
        return self.prefix << 16 | id_


class SubgraphBuilder(GraphBuilder):
    """Builder of a referenced subgraph: build it in a `with` block, then pass it to IF or WHILE."""

    def __enter__(self) -> "SubgraphBuilder":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._subgraph()
            self._complete = True


class ModelBuilder(GraphBuilder):
    """Builder of a model and of its main subgraph. See `nnhal.builder`.

    Args:
        relaxed: whether TENSOR_FLOAT32 may be computed with the range and precision of float16.
    """

    def __init__(self, *, relaxed: bool = False) -> None:
        super().__init__(SharedState(), "main")
        self._relaxed = relaxed

    def subgraph(self) -> SubgraphBuilder:
        """Return the builder of a new subgraph for IF or WHILE: `with b.subgraph() as then: ...`."""
        builder = SubgraphBuilder(self._shared, f"referenced subgraph {len(self._shared.referenced)}")
        self._shared.referenced.append(builder)
        return builder

    def extension(self, name: str) -> ModelExtension:
        """Return the extension of a name, for example "org.example.x". A repeated call returns an equal extension.

        Raises:
            HalError: INVALID_ARGUMENT: the name is invalid (V-EXT-01, V-EXT-02).
        """
        prefixes = self._shared.prefixes
        prefix = prefixes.get(name, len(prefixes) + 1)
        NAME_RULES.check(ExtensionNameAndPrefix(name, prefix), lambda: "the extension")
        prefixes[name] = prefix
        return ModelExtension(name, prefix)

    def build(self) -> Model:
        """Return the model.

        Raises:
            HalError: INVALID_ARGUMENT: operations, outputs or names are missing, or a subgraph is not complete.
        """
        main = self._subgraph()
        for graph in self._shared.referenced:
            if not graph._complete:
                raise invalid_argument(f"{graph.name} is not complete: end its `with` block first")
        constants = self._shared.constants
        return Model(
            main,
            tuple(graph._subgraph() for graph in self._shared.referenced),
            constants.operand_values,
            constants.pools,
            self._relaxed,
            tuple(ExtensionNameAndPrefix(name, prefix) for name, prefix in self._shared.prefixes.items()),
            _all_or_no_names("input", [ref.name for ref in self._inputs]),
            _all_or_no_names("output", [name for _, name in self._outputs]),
        )


def _all_or_no_names(kind: str, names: list[str]) -> tuple[str, ...]:
    """Return the names, or () if there is none. Raise HalError if only some inputs or outputs have one."""
    if any(names) and "" in names:
        named = next(i for i, name in enumerate(names) if name)
        reason = f"{kind} {names.index('')} has no name, but {kind} {named} has: name all or none"
        raise invalid_argument(reason)
    return tuple(names) if any(names) else ()
