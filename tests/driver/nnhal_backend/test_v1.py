"""Public interface for backend authors. Only a new minor version may add names."""

import ast
import inspect
from types import ModuleType

import nnhal_backend.v1
from nnhal_backend.v1 import Backend, CompiledSubgraph, OperationCall, OperationView, PerOperationBackend

INTERFACE_1_1 = """
    API_VERSION AnyArray Arguments Backend Bytes CompileOptions CompiledSubgraph DTYPES ErrorStatus ExecutionPreference
    Extension ExtensionOperandTypeInformation FusedActivationFunc Graph HalError Layout MemoryManager MemoryMode Operand
    OperandLifeTime OperandType Operation OperationCall OperationType OperationView OptimizedSubgraph Output PACK
    PerOperationBackend PerformanceInfo Piece Profile Relayout Run Sections Shape Storage Subgraph SubgraphView
    Substitution Support SymmPerChannelQuantParams Workload byte_size infer is_extension is_tensor operation_name
    type_name
"""

INTERFACE_1_2 = (
    INTERFACE_1_1
    + """
    BackendOptions DeviceType OptionError PowerMode Precision
    Creator DeviceBuffer DeviceMemory ExtensionParams ShapeFunction
    CustomAllocator MemorySource ProfilingContext WorkloadFactory allocate_with
"""
)

MEMBERS_1_1 = {
    Backend: """
        after_load after_unload before_load before_unload capabilities compile extensions fingerprint load optimize
        performance supports
    """,
    CompiledSubgraph: """
        copies_inputs execute execute_begin execute_end layouts memory resize resize_begin resize_end save wait_finish
    """,
    PerOperationBackend: "compile workload",
    OperationView: "arguments callees constant extension graph index name operand operation positions type",
    OperationCall: """
        activation array axis channel_quant failure flag has inferred integer memoize_constant number operand
        reads_values repeated require share shape vector view
    """,
}

MEMBERS_1_2: dict[type, str] = {
    Backend: """
        after_load_network after_unload_network before_load_network before_unload_network close create_memory_manager
        create_profiling_context
        use_allocator device_type stops_between_operations hardware memory_bytes
    """,
    CompiledSubgraph: "device_operands",
    OperationCall: "check integers",
    PerOperationBackend: "create_workload_factory creator output_shapes supports",
}
"""Additions of 1.2."""


def test_exported_names() -> None:
    assert nnhal_backend.v1.API_VERSION == (1, 2), "a new minor version: add its names here"
    assert sorted(nnhal_backend.v1.__all__) == sorted(INTERFACE_1_2.split())
    public = {name for name, value in vars(nnhal_backend.v1).items() if not name.startswith("_")}
    assert public == set(nnhal_backend.v1.__all__)


def test_class_members() -> None:
    for class_, names in MEMBERS_1_1.items():
        members = {*vars(class_), *vars(class_).get("__annotations__", {})}
        public = {name for name in members if not name.startswith("_")}
        expected = {*names.split(), *MEMBERS_1_2.get(class_, "").split()}
        assert public - {"id", "version"} == expected, class_


def test_names_have_docstrings() -> None:
    for name in nnhal_backend.v1.__all__:
        value = getattr(nnhal_backend.v1, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert inspect.getdoc(value), name


def test_modules_contain_only_imports() -> None:
    for module in (nnhal_backend, nnhal_backend.v1):
        assert all(_is_declaration(node) for node in _syntax(module).body)


def _syntax(module: ModuleType) -> ast.Module:
    return ast.parse(inspect.getsource(module))


def _is_declaration(node: ast.stmt) -> bool:
    """Return whether a statement is the docstring, an import, or the assignment of __all__."""
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)] == ["__all__"]
    return isinstance(node, ast.ImportFrom) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
