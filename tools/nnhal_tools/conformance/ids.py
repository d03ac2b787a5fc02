"""Ids of all checks, with a line of description each.

COM to EXTRA are those of the vendor test suite and its restatement. X are allowances, which let a check end early
without a failure. NNHAL covers promises that the contract adds to the HAL. New ids are appended to their group, and
numbers are never reused.

`python -m nnhal_tools.conformance.ids --write FILE` writes the table between the markers of a document.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

BEGIN = "<!-- ids: made by python -m nnhal_tools.conformance.ids -->"
END = "<!-- end of ids -->"


@dataclass(frozen=True)
class Check:
    """Check id.

    Attributes:
        suite: the suite that it belongs to; "" for an allowance.
        description: the requirement.
    """

    id: str
    suite: str
    description: str


@dataclass(frozen=True)
class Group:
    """Ids with a common prefix, numbered from 1 in the order of `descriptions`."""

    name: str
    suite: str
    title: str
    descriptions: tuple[str, ...]

    def checks(self) -> Iterator[Check]:
        """Yield the ids, in order."""
        for number, description in enumerate(self.descriptions, 1):
            yield Check(f"{self.name}-{number:02d}", self.suite, description)


GROUPS = (
    Group(
        "COM",
        "basic",
        "Presence of a device",
        (
            "the server offers the device",
            "the device responds; this is checked again before each check",
            "the device and a prepared model report their interface version",
        ),
    ),
    Group(
        "PREP",
        "generated",
        "Preparation gate of every check that needs a prepared model",
        (
            "getSupportedOperations succeeds",
            "its list has a value for each operation, and is not empty",
            "the launch of a preparation succeeds, even if an operation is not supported",
            "a callback arrives",
            "if every operation is supported, the status in the callback is NONE",
            "the callback has a model if and only if the status is NONE",
        ),
    ),
    Group(
        "BASIC",
        "basic",
        "Properties of the device; cyclic models",
        (
            "the device exists and responds",
            "getCapabilities succeeds",
            "performance of relaxed scalars is above 0",
            "performance of relaxed tensors is above 0",
            "performance of each operand type is above 0",
            "operand types are in ascending order",
            "SUBGRAPH is not among them",
            "performance of IF and WHILE is above 0",
            "getSupportedOperations rejects a cyclic model with INVALID_ARGUMENT",
            "the launch of preparing a cyclic model fails",
            "its callback has an error and no model",
        ),
    ),
    Group(
        "GEN",
        "generated",
        "Preparation and execution of every vector",
        (
            "the model passes the preparation gate",
            "it passes the gate through prepareModelWithConfig, and everything holds for that model too",
            "createReusableExecution succeeds for every configuration",
            "a synchronous execution succeeds or fails with a service-specific error",
            "configureExecutionBurst succeeds",
            "a burst execution succeeds or fails with a service-specific error",
            "releaseMemoryResource succeeds after each burst execution",
            "a fenced launch succeeds or fails with a service-specific error",
            "a launch can wait for the fence of an earlier launch",
            "Fence.Wait returns when the fence is signaled or in error",
            "getExecutionInfo succeeds",
            "timing is (-1, -1) if it was not requested",
            "the time on the device is not longer than the time in the driver",
            "fully specified outputs: the status is NONE",
            "fully specified outputs: no shapes, or one for each output",
            "a fenced execution rejects a zero-sized output with INVALID_ARGUMENT",
            "each shape is sufficient and has the vector's dimensions",
            "the data equals the vector's, within its tolerance",
            "a reusable execution runs twice with correct results",
            "outputs of unspecified dimensions: the status is NONE",
            "outputs of unspecified dimensions: one shape for each output",
            "a fenced execution rejects outputs of unspecified dimensions",
            "output 0 one byte too small: the status is OUTPUT_INSUFFICIENT_SIZE",
            "output 0 one byte too small: one shape for each output",
            "output 0 one byte too small: only this output is insufficient",
            "output 0 one byte too small: the rank and the known dimensions equal the vector's",
            "a fenced execution rejects an output that is too small",
            "allocate for an input returns a device buffer, or fails with GENERAL_FAILURE",
            "allocate for an output returns a device buffer, or fails with GENERAL_FAILURE",
            "copyFrom of an input's data into its buffer succeeds",
            "an execution on device buffers has the same results as one on shared memory",
            "copyTo of an output's data out of its buffer succeeds",
            "the loop timeout ends an endless loop with MISSED_DEADLINE_*",
            "a quant8 model and its signed variant are either both supported or both unsupported",
            "the signed variant has correct results",
        ),
    ),
    Group(
        "VALMODEL",
        "validation",
        "Mutations that make a valid model invalid; 01 to 03 say how it must be rejected",
        (
            "getSupportedOperations fails with INVALID_ARGUMENT",
            "prepareModel fails with INVALID_ARGUMENT at launch and in the callback, without a model",
            "prepareModelWithConfig does the same",
            "an operation comes before one whose output it reads",
            "an operation comes after one that reads its output",
            "an operand has an unknown type",
            "a scalar has dimensions",
            "an operand has a scale that its type forbids",
            "an operand has a zero point that its type forbids",
            "an operand has a lifetime that contradicts its having, or not having, a writer",
            "an operand has a lifetime that contradicts the input and output lists",
            "an operand is written twice",
            "an operand has a type that the operation does not accept",
            "an operation has an unknown type",
            "an operation reads an operand with an index out of range",
            "an operation writes an operand with an index out of range",
            "an operand is read but never written",
            "an operand is removed without renumbering the others",
            "an operation is removed",
            "an operation lacks an input",
            "an operation lacks an output",
            "an operation has one input too many",
            "an operation has one output too many",
            "the execution preference is unknown",
            "the priority is unknown",
        ),
    ),
    Group(
        "VALREQ",
        "request",
        "Requests that lack an argument, on every path; vectors that must fail",
        (
            "an input argument is missing",
            "an output argument is missing",
            "executeSynchronously fails with INVALID_ARGUMENT",
            "executeFenced fails with INVALID_ARGUMENT at launch",
            "a burst execution fails with INVALID_ARGUMENT",
            "createReusableExecution, or each run of the execution, fails with INVALID_ARGUMENT",
            "executeSynchronouslyWithConfig fails with INVALID_ARGUMENT",
            "executeFencedWithConfig fails with INVALID_ARGUMENT at launch",
            "a burst execution with a configuration fails with INVALID_ARGUMENT",
            "a vector that must fail has a valid model",
            "the execution of such a vector fails with a service-specific error",
        ),
    ),
    Group(
        "BURST",
        "burst",
        "Memory identifiers of a burst",
        (
            "configureExecutionBurst succeeds",
            "an identifier below -1 is rejected",
            "one identifier too few is rejected",
            "one identifier too many is rejected",
            "releasing an identifier below -1 is rejected",
        ),
    ),
    Group(
        "CACHE",
        "cache",
        "Compilation caching",
        (
            "getNumberOfCacheFilesNeeded succeeds",
            "the number of model cache files is not negative",
            "the number of data cache files is not negative",
            "getSupportedOperations has a value for each operation",
            "a launch that saves succeeds, even with wrong files",
            "the status in its callback is NONE",
            "prepareModelFromCache succeeds or fails with a service-specific error",
            "wrong files: INVALID_ARGUMENT or GENERAL_FAILURE, and no model",
            "wrong files, after GENERAL_FAILURE: a preparation with them succeeds",
            "a device that caches nothing fails with GENERAL_FAILURE",
            "a saved model can be retrieved",
            "a model from the cache has the same results as the original",
            "saving works from any offset of the files",
            "retrieving works from any offset of the files",
            "a model from files at another offset has the same results as the original",
            "saving with one model file too many",
            "saving with one model file too few",
            "saving with one data file too many",
            "saving with one data file too few",
            "retrieving with one model file too many",
            "retrieving with one model file too few",
            "retrieving with one data file too many",
            "retrieving with one data file too few",
            "saving to a read-only model file",
            "saving to a read-only data file",
            "retrieving from a write-only model file",
            "retrieving from a write-only data file",
            "saving succeeds while another thread writes to the files",
            "a model that was saved meanwhile is correct or rejected",
            "retrieving while another thread writes to the files gives the correct model or is rejected",
            "model files of another model are rejected with GENERAL_FAILURE",
        ),
    ),
    Group(
        "CACHESEC",
        "cachesec",
        "Tampered cache files and tokens",
        (
            "a flipped bit in a model file: GENERAL_FAILURE and no model",
            "bytes appended to a model file: GENERAL_FAILURE and no model",
            "a flipped bit in a data file: no crash, and a model if and only if the status is NONE",
            "bytes appended to a data file: no crash, and a model if and only if the status is NONE",
            "a flipped bit in the token: GENERAL_FAILURE and no model",
        ),
    ),
    Group(
        "MEMDOM",
        "memdom",
        "Driver-managed buffers; invalid calls must be rejected",
        (
            "allocate without models and roles",
            "allocate without roles",
            "allocate for a null model, input role",
            "allocate for a null model, output role",
            "allocate for a model of another device, input role",
            "allocate for a model of another device, output role",
            "allocate for a model index out of range, input role",
            "allocate for a model index out of range, output role",
            "allocate for an input index out of range",
            "allocate for an output index out of range",
            "allocate with a probability outside (0, 1], input role",
            "allocate with a probability outside (0, 1], output role",
            "allocate with an input role twice",
            "allocate with an output role twice",
            "allocate with an input role twice through a model listed twice",
            "allocate with an output role twice through a model listed twice",
            "allocate for roles of different operand types",
            "allocate for roles of different scales",
            "allocate for roles of different zero points",
            "allocate for roles of different ranks",
            "allocate for roles of different dimensions",
            "allocate with a rank that differs from the role's",
            "allocate with dimensions that differ from the role's",
            "allocate with dimensions for a scalar",
            "a valid allocation returns a buffer and a token above 0, or fails with GENERAL_FAILURE",
            "copyFrom of half the bytes",
            "copyFrom of twice the bytes",
            "copyFrom of half the bytes, with a shape",
            "copyFrom of twice the bytes, with a shape",
            "copyFrom of the right number of bytes, with a shape, succeeds",
            "copyFrom with a shape of another size",
            "copyFrom with another rank",
            "copyFrom with another dimension",
            "copyFrom with a dimension 0",
            "copyFrom without a shape into a buffer of known shape succeeds",
            "copyFrom with the buffer's shape succeeds",
            "copyFrom with another rank into a buffer of unknown shape",
            "copyFrom with another dimension into a buffer of unknown shape",
            "copyFrom with a dimension 0 into a buffer of unknown shape",
            "copyFrom without a shape into a buffer of unknown shape",
            "copyFrom with a shape into a buffer of unknown shape succeeds",
            "copyTo of an uninitialized buffer: GENERAL_FAILURE",
            "copyTo into half the bytes",
            "copyTo into twice the bytes",
            "copyTo into the right number of bytes succeeds",
            "copyTo of a buffer of unknown shape into half the bytes",
            "copyTo of a buffer of unknown shape into twice the bytes",
            "copyTo of a buffer of unknown shape into the right number of bytes succeeds",
            "an input with token 0",
            "an input with a token that was never issued",
            "an output with token 0",
            "an output with a token that was never issued",
            "a buffer of another prepared model as input",
            "a buffer of another prepared model as output",
            "a buffer as an input for which it has no role",
            "a buffer as an output for which it has no role",
            "an input's buffer as output",
            "an output's buffer as input",
            "an uninitialized buffer as input: GENERAL_FAILURE",
            "an uninitialized buffer as output succeeds",
            "a buffer that an execution filled, as input, succeeds",
            "one buffer as input and output",
            "one buffer as two outputs",
            "one buffer as two inputs succeeds",
            "a device input with dimensions that differ from the buffer's",
            "a device output with dimensions that differ from the buffer's",
            "a result that does not fit its buffer: GENERAL_FAILURE",
            "timing is (-1, -1)",
            "bursts, callbacks and fences succeed",
        ),
    ),
    Group(
        "QOS",
        "qos",
        "Priorities and deadlines",
        (
            "getSupportedOperations succeeds",
            "each launch succeeds, even with a deadline that has passed",
            "an error in the callback comes without a model",
            "a preparation with priority LOW succeeds",
            "a preparation with priority HIGH succeeds",
            "a preparation with a deadline of now: NONE or MISSED_DEADLINE_*",
            "a preparation with an unlimited deadline succeeds",
            "a preparation with a short deadline: NONE or MISSED_DEADLINE_*",
            "there is a model if and only if the status is NONE",
            "each execution succeeds or fails with a service-specific error",
            "timing is (-1, -1)",
            "SYNC with a deadline of now: NONE or MISSED_DEADLINE_*",
            "SYNC with an unlimited deadline: NONE",
            "SYNC with a short deadline: NONE or MISSED_DEADLINE_*",
            "BURST with a deadline of now: NONE or MISSED_DEADLINE_*",
            "BURST with an unlimited deadline: NONE",
            "BURST with a short deadline: NONE or MISSED_DEADLINE_*",
            "no shapes, or a correct and sufficient one for each output",
            "the data equals the vector's if the status is NONE",
        ),
    ),
    Group(
        "STATIC",
        "basic",
        "Constants of the contract",
        (
            "the loop timeout is 2 s by default and 15 s at most",
            "operand types have the HAL's numbers",
            "operation types have the HAL's numbers",
        ),
    ),
    Group(
        "EXTRA",
        "extra",
        "Requirements of the HAL that the vendor test suite does not cover",
        (
            "notify comes exactly once, however a preparation ends",
            "every call that takes times rejects times below -1",
            "loop timeouts of 0, 15 s, and above 15 s",
            "getExecutionInfo before the end, again, and after the prepared model is released",
            "fences in error before and after a launch; every one of several fences counts",
            "a duration counts from the last fence; the earlier of duration and deadline applies",
            "executions of a prepared model run in parallel; those of a burst or reusable execution do not",
            "type, version string, cache file numbers, extensions and performance values are well-formed",
            "a buffer is uninitialized after a failed copy and a failed execution",
            "tokens are unique and unknown after release; a buffer in use outlives its release",
            "a device buffer has the shape that was last written",
            "hints: unknown extensions, repeated tokens and prefixes without a name are ignored",
            "extension types and operations; the rules of their prefix table",
            "models: locations, lengths, padding, extra parameters, dimensions, control flow, cycles, empty subgraphs",
            "requests: pools, regions, lengths, dimensions, omitted arguments, tokens",
            "overlapping outputs are rejected",
            "a region that is too small or too large for a fully specified output is rejected",
            "inputs are never modified; padding and bytes outside regions are never written",
            "each object works after the objects that it was created from are released",
            "the memory cache of a burst: reuse and release of identifiers",
            "cache files: truncation, order, unused tokens, descriptors closed after the callback",
            "a deadline that has passed gives MISSED_DEADLINE_PERSISTENT, a loop timeout MISSED_DEADLINE_TRANSIENT",
            "the end of a client frees its objects and ends its waiting calls",
            "many threads prepare the same model at once",
            "a device that needs cache files can retrieve a model that it saved",
            "wrong tokens and tampered model files are rejected at launch, and the callback has the same status",
            "priorities order the models of one client; no client is starved by another one's models",
        ),
    ),
    Group(
        "NNHAL",
        "nnhal",
        "Promises that the contract adds to the HAL (with --strict)",
        (
            "a preparation whose deadline has passed does not run: MISSED_DEADLINE_* and no model",
            "an execution whose deadline has passed does not run: MISSED_DEADLINE_*, and its outputs are unchanged",
            "the error for a rejected model names the broken rule, and the operand or operation",
            "the error for a rejected request names the broken rule, and the argument",
            "callback and launch error of a rejection have the same status, reason and rule",
            "an error has the gRPC code of the contract's table, and a reason of at most 2 KiB",
            "`launched` comes first if the launch succeeds, then one `notify`, then the stream ends",
            "a cancelled preparation notifies at most once, and concurrent ones exactly once",
            "prepared models of another session are indistinguishable from unknown ones",
            "memories of another session are indistinguishable from unknown ones",
            "released objects are gone; a repeated release and unknown handles are ignored",
            "a closed session is lost for every call, and its objects are gone",
            "a session whose stream broke can be resumed",
            "a ReturnedPool without a size is as large as needed, and is for outputs only",
            "a ReturnedPool of a fixed size respects its capacity",
            "outputs that are too large for a message are returned as Memory objects",
            "inline pools and memories without the write bit are rejected for outputs",
            "unset unions are rejected",
            "an upload is checked against its digest, and its memory is then read-only",
            "bytes whose digest the service knows need not be uploaded again",
            "memory can be written and read in any order, but not out of bounds",
            "more inline bytes than the limit are rejected, and the error names the limit",
            "a prepared model comes with the placement of each operation and the operands of its inputs and outputs",
            "every call that names a device rejects an unknown one",
            "calls that are not offered fail with a reason and the kind UNIMPLEMENTED",
            "a model in the service's cache survives a restart (needs --restart-cmd)",
            "a NaN among the inputs reaches the outputs that depend on it",
            "a model reported as SAVED can be retrieved, and is a HIT, from the service's store and from files",
            "a miss has a reason, in the callback and in Cache.Check: no entry, another token, truncated, tampered",
            "Cache.List and Cache.Clear list and remove the entries of the store",
            "a model from the cache keeps the priority that it was saved with",
            "files that cannot be written are reported as NOT_SAVED, with a warning `cache-not-saved` and the reason",
            "a model from the cache has the placement, inputs and outputs of the original",
            "data socket: a connection must send HELLO with a live session and its secret first",
            "data socket: shared memory must be a sealed, non-empty memfd, with a number that is new in the session",
            "data socket: a malformed packet ends its connection, and no other",
            "data socket: DEFINE rejects a request as the same call does; an undefined request cannot run",
            "data socket: a request keeps dropped memory in use; shared memory ends with its connection",
            "data socket: returned outputs lie in the area if they fit, and are Memory objects otherwise",
            "data socket: the execution of a client that disconnects is cancelled",
            "getCapabilities lists every operand type of which the device supports an operation",
            "a deadline counts from the call: one of an hour is met, however long the device is up",
            "only a client that accepts a redirect gets one, as the only event; it leads to a session, and back to it",
            "a defined request runs with other values each time, on a model and on a burst, by call and by stream",
            "a run with another number or size of values is INVALID_ARGUMENT, and the definition stays usable",
        ),
    ),
    Group(
        "HOST",
        "host",
        "Plug-ins in services that the harness starts itself (with --strict)",
        (
            "a backend that exits while it compiles costs one callback with a status, and no thread",
            "an invalid answer to `supports`, or none at all, costs the backend the operation, and not the call",
            "a backend with invalid performance figures does not fail getCapabilities",
            "an ill-formed name of an extension is not passed on",
            "operations and operand types of a listed extension work in each call, with shared memory and in buffers",
            "a constant of an extension type with another size than the listed one is rejected",
            "every backend is told once of a network, before it is optimized, and again when it is unloaded",
            "a deadline and a cancellation reach a backend that compiles",
            "a preparation whose deadline passes in the queue is reported while the work before it still runs",
            "a backend is closed once, when the service stops",
            "a backend that was edited has another version, even if it says the same",
            "a plug-in may import modules beside its file, which register operations",
            "a backend receives the options that the operator sets for it",
            "the type of a device is that of its first backend, or the one that the operator sets",
            "a backend is offered the allocator that the operator sets",
            "a device that runs few operations lists the performance of their operand types",
            "a backend copies values into and out of its own memory, and an execution waits for its work",
            "the host asks a backend for a memory manager, and the factory of its workloads gets it",
            "the profiling context of a backend is told of every profiled execution, by every call",
        ),
    ),
    Group(
        "RESIL",
        "resilience",
        "Crashes and stops of the service (with --strict, needs --kill-cmd)",
        (
            "a preparation in progress ends with UNAVAILABLE or with a model, after at most one notify",
            "so does a preparation from the cache",
            "so does a preparation that saves its model",
            "an execution in progress ends with UNAVAILABLE or with right outputs, within --recovery-s",
            "so does a run of a reusable execution",
            "so does a fenced execution, and so does waiting for its fence",
            "so does an execution of a burst",
            "a stream of a burst ends with UNAVAILABLE, after right answers in order",
            "data socket: a connection ends, after right answers",
            "data socket: shared memory is unchanged outside the output, and can be shared again",
            "an upload ends with UNAVAILABLE, and its bytes are not taken for complete",
            "a stream of answers that is cut off ends with UNAVAILABLE",
            "a device buffer is gone, and its token denotes no other buffer",
            "the service responds again within --recovery-s, and its health is SERVING",
            "a session of the process is lost for every call, and cannot be resumed",
            "a model that was saved before is a HIT with right outputs, or a MISS with a reason",
            "so is a model whose saving was interrupted; it can be saved again",
            "no entry of the store is damaged",
            "the sessions of other processes go on",
            "a process that is asked to stop ends the same way, and says why (needs --stop-cmd)",
        ),
    ),
    Group(
        "X",
        "",
        "Allowances, which let a check end early without failing",
        (
            "not every operation is supported, and the preparation fails",
            "GENERAL_FAILURE if outputs are not fully specified",
            "the device allocates no buffer for a role",
            "the device needs no cache files",
            "caching: the model is not fully supported",
            "caching: nothing was saved",
            "a cache file is empty, so no bit can be flipped",
            "output 0 has at most one byte, so it cannot be too small",
            "a fenced execution with a zero-sized output must be rejected",
            "the device is older than the vector",
            "buffers: preparing a model fails",
            "a deadline of now or shortly after: NONE and MISSED_DEADLINE_* are both allowed",
        ),
    ),
)


def _table() -> dict[str, Check]:
    table = {check.id: check for group in GROUPS for check in group.checks()}
    for number in range(1, len(GROUPS[-1].descriptions) + 1):  # allowances are X1, not X-01
        check = table.pop(f"X-{number:02d}")
        table[f"X{number}"] = Check(f"X{number}", "", check.description)
    return table


CHECKS = _table()
"""All ids."""

SUITES = tuple(dict.fromkeys(check.suite for check in CHECKS.values() if check.suite))
"""Names of the suites, in the order of the groups."""


def validate_id(check: str) -> str:
    """Return an id if it exists.

    Raises:
        ValueError: the id is unknown.
    """
    if check not in CHECKS:
        raise ValueError(f"unknown check {check!r}")
    return check


def as_markdown() -> str:
    """Return a table for each group of ids."""
    lines = []
    for group in GROUPS:
        suite = f" (suite `{group.suite}`)" if group.suite else ""
        lines += [f"### {group.name}: {group.title}{suite}", "", "| ID | Requirement |", "|---|---|"]
        for check in CHECKS.values():
            if check.id.rstrip("0123456789").rstrip("-") == group.name:
                lines.append(f"| {check.id} | {check.description} |")
        lines.append("")
    return "\n".join(lines)


def with_table(document: str) -> str:
    """Return a document with the tables between its markers.

    Raises:
        ValueError: the document lacks a marker.
    """
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the document lacks {BEGIN} or {END}")
    return f"{before}{BEGIN}\n\n{as_markdown()}\n{END}{after}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the tables into a document."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--write", type=Path, required=True, metavar="FILE")
    path: Path = parser.parse_args(arguments).write
    path.write_text(with_table(path.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
