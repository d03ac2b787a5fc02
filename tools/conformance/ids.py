"""The ids of all checks, one line for each.

COM to EXTRA are those of the vendor test suite and its restatement, X are allowances (ways to end early without
failing), NNHAL is our own: what the contract promises beyond the HAL. Numbers are never given anew, only appended.

`python -m tools.conformance.ids --write FILE` puts the table between the markers of a document.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

BEGIN = "<!-- ids: made by python -m tools.conformance.ids -->"
END = "<!-- end of ids -->"


@dataclass(frozen=True)
class Check:
    """One id.

    Attributes:
        suite: the suite that it belongs to; "" for an allowance.
        text: what is checked.
    """

    id: str
    suite: str
    text: str


@dataclass(frozen=True)
class Group:
    """The ids of one kind, numbered from 1 by their place in `texts`."""

    name: str
    suite: str
    about: str
    texts: tuple[str, ...]

    def checks(self) -> Iterator[Check]:
        """The ids, in order."""
        for number, text in enumerate(self.texts, 1):
            yield Check(f"{self.name}-{number:02d}", self.suite, text)


GROUPS = (
    Group(
        "COM",
        "basic",
        "A device is there",
        (
            "the server offers the device",
            "the device answers; asked again before each check",
            "device and prepared model tell their interface version",
        ),
    ),
    Group(
        "PREP",
        "generated",
        "The preparation gate, wherever a prepared model is needed",
        (
            "getSupportedOperations is OK",
            "its list has an entry for each operation, and is not empty",
            "the launch of a preparation is OK, also when an operation is not supported",
            "a callback arrives",
            "where every operation is supported the callback says NONE",
            "the callback brings a model exactly with NONE",
        ),
    ),
    Group(
        "BASIC",
        "basic",
        "What a device says of itself; cyclic models",
        (
            "the device is there and answers",
            "getCapabilities is OK",
            "performance of relaxed scalars is above 0",
            "performance of relaxed tensors is above 0",
            "performance of each operand type is above 0",
            "operand types are in rising order",
            "SUBGRAPH is not among them",
            "performance of IF and of WHILE is above 0",
            "getSupportedOperations refuses a cyclic model with INVALID_ARGUMENT",
            "the launch of preparing a cyclic model fails",
            "its callback has an error and no model",
        ),
    ),
    Group(
        "GEN",
        "generated",
        "Every vector is prepared and executed",
        (
            "the model passes the gate",
            "it passes the gate through prepareModelWithConfig, and everything holds on that model too",
            "createReusableExecution succeeds for every configuration",
            "a synchronous execution is OK or fails with a service-specific error",
            "configureExecutionBurst succeeds",
            "a burst execution is OK or fails with a service-specific error",
            "releaseMemoryResource is OK after each burst execution",
            "a fenced launch is OK or fails with a service-specific error",
            "the fence of one launch can be waited for by the next",
            "a fence can be waited for",
            "getExecutionInfo answers",
            "timing is (-1, -1) where it was not asked for",
            "timing on the device is not longer than in the driver",
            "outputs fully specified: the status is NONE",
            "outputs fully specified: no shapes, or one for each output",
            "a fenced execution refuses a zero-sized output with INVALID_ARGUMENT",
            "each shape is sufficient and has the vector's dimensions",
            "the data is the vector's, within its tolerance",
            "a reusable execution runs twice, and right both times",
            "outputs of unspecified dimensions: the status is NONE",
            "outputs of unspecified dimensions: one shape for each output",
            "a fenced execution refuses outputs of unspecified dimensions",
            "output 0 one byte too small: the status is OUTPUT_INSUFFICIENT_SIZE",
            "output 0 one byte too small: one shape for each output",
            "output 0 one byte too small: it alone is not sufficient",
            "output 0 one byte too small: rank and known dimensions are the vector's",
            "a fenced execution refuses an output that is too small",
            "a device buffer can be had for each input, or GENERAL_FAILURE",
            "a device buffer can be had for each output, or GENERAL_FAILURE",
            "the data of an input can be copied into its buffer",
            "an execution on device buffers gives what one on shared memory gives",
            "the data of an output can be copied out of its buffer",
            "an endless loop is ended by its timeout with MISSED_DEADLINE_*",
            "a quant8 model and its signed twin are both supported or both not",
            "both give the right results",
        ),
    ),
    Group(
        "VALMODEL",
        "validation",
        "Each mutation makes a valid model invalid; 01 to 03 say how it must be refused",
        (
            "getSupportedOperations answers INVALID_ARGUMENT",
            "prepareModel answers INVALID_ARGUMENT at launch and in the callback, without a model",
            "prepareModelWithConfig does the same",
            "an operation stands before one whose output it reads",
            "an operation stands after one that reads its output",
            "an operand has a type that does not exist",
            "a scalar has dimensions",
            "an operand has a scale that its type forbids",
            "an operand has a zero point that its type forbids",
            "an operand has a lifetime that its writer, or the lack of one, forbids",
            "an operand has a lifetime that the input and output lists contradict",
            "an operand is written twice",
            "an operand has a type that the operation does not take",
            "an operation has a type that does not exist",
            "an operation reads an operand that does not exist",
            "an operation writes an operand that does not exist",
            "an operand that is read is never written",
            "an operand is removed, and indexes are left as they are",
            "an operation is removed",
            "an operation lacks an input",
            "an operation lacks an output",
            "an operation has an input too many",
            "an operation has an output too many",
            "the execution preference does not exist",
            "the priority does not exist",
        ),
    ),
    Group(
        "VALREQ",
        "request",
        "A request that lacks an argument is refused on every path; vectors that must fail do",
        (
            "an input argument is missing",
            "an output argument is missing",
            "executeSynchronously answers INVALID_ARGUMENT",
            "executeFenced answers INVALID_ARGUMENT at launch",
            "a burst answers INVALID_ARGUMENT",
            "createReusableExecution, or each execution of what it made, answers INVALID_ARGUMENT",
            "executeSynchronouslyWithConfig answers INVALID_ARGUMENT",
            "executeFencedWithConfig answers INVALID_ARGUMENT at launch",
            "a burst with a configuration answers INVALID_ARGUMENT",
            "a vector that must fail has a valid model",
            "executing it fails with a service-specific error",
        ),
    ),
    Group(
        "BURST",
        "burst",
        "Identifiers of a burst",
        (
            "configureExecutionBurst succeeds",
            "an identifier below -1 is refused",
            "an identifier too few is refused",
            "an identifier too many is refused",
            "releasing an identifier below -1 is refused",
        ),
    ),
    Group(
        "CACHE",
        "cache",
        "Compilation caching",
        (
            "getNumberOfCacheFilesNeeded is OK",
            "the number of model cache files is not negative",
            "the number of data cache files is not negative",
            "getSupportedOperations has one entry for each operation",
            "a launch that saves is OK, whatever is wrong with the files",
            "its callback says NONE",
            "prepareModelFromCache is OK or fails with a service-specific error",
            "wrong files: INVALID_ARGUMENT or GENERAL_FAILURE, and no model",
            "wrong files, GENERAL_FAILURE: preparing with them works",
            "a device that caches nothing answers GENERAL_FAILURE",
            "what was saved can be retrieved",
            "a model from the cache executes as the original does",
            "saving works from any offset of the files",
            "retrieving works from any offset of the files",
            "a model from files of another offset executes as the original does",
            "saving with a model file too many",
            "saving with a model file too few",
            "saving with a data file too many",
            "saving with a data file too few",
            "retrieving with a model file too many",
            "retrieving with a model file too few",
            "retrieving with a data file too many",
            "retrieving with a data file too few",
            "saving to a read-only model file",
            "saving to a read-only data file",
            "retrieving from a write-only model file",
            "retrieving from a write-only data file",
            "saving works while another writes to the files",
            "what was saved so is right or refused",
            "retrieving while another writes to the files gives the right model or is refused",
            "model files of another model are refused with GENERAL_FAILURE",
        ),
    ),
    Group(
        "CACHESEC",
        "cachesec",
        "Cache files that were tampered with",
        (
            "a flipped bit in a model file: GENERAL_FAILURE and no model",
            "bytes appended to a model file: GENERAL_FAILURE and no model",
            "a flipped bit in a data file: no crash, a model exactly with NONE",
            "bytes appended to a data file: no crash, a model exactly with NONE",
            "a flipped bit in the token: GENERAL_FAILURE and no model",
        ),
    ),
    Group(
        "MEMDOM",
        "memdom",
        "Driver-managed buffers",
        (
            "allocate without models and roles",
            "allocate without roles",
            "allocate for a null model, input role",
            "allocate for a null model, output role",
            "allocate for a model of another device, input role",
            "allocate for a model of another device, output role",
            "allocate for a model index out of range, input role",
            "allocate for a model index out of range, output role",
            "allocate for an input that is not there",
            "allocate for an output that is not there",
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
            "allocate with a rank that is not the role's",
            "allocate with dimensions that are not the role's",
            "allocate with dimensions for a scalar",
            "a valid allocation gives a buffer and a token above 0, or GENERAL_FAILURE",
            "copyFrom of half the bytes",
            "copyFrom of twice the bytes",
            "copyFrom of half the bytes, shape given",
            "copyFrom of twice the bytes, shape given",
            "copyFrom of the right bytes, shape given",
            "copyFrom with a shape of another size",
            "copyFrom with another rank",
            "copyFrom with another dimension",
            "copyFrom with a dimension 0",
            "copyFrom without a shape where the buffer's is known",
            "copyFrom with the buffer's shape",
            "copyFrom with another rank into a buffer of open shape",
            "copyFrom with another dimension into a buffer of open shape",
            "copyFrom with a dimension 0 into a buffer of open shape",
            "copyFrom without a shape into a buffer of open shape is refused",
            "copyFrom with a shape into a buffer of open shape",
            "copyTo of an uninitialised buffer: GENERAL_FAILURE",
            "copyTo into half the bytes",
            "copyTo into twice the bytes",
            "copyTo into the right bytes",
            "copyTo of a buffer of open shape into half the bytes",
            "copyTo of a buffer of open shape into twice the bytes",
            "copyTo of a buffer of open shape into the right bytes",
            "an input with token 0",
            "an input with a token that was never given",
            "an output with token 0",
            "an output with a token that was never given",
            "a buffer of another prepared model as input",
            "a buffer of another prepared model as output",
            "a buffer as an input that is none of its roles",
            "a buffer as an output that is none of its roles",
            "an input's buffer as output",
            "an output's buffer as input",
            "an uninitialised buffer as input: GENERAL_FAILURE",
            "an uninitialised buffer as output",
            "a buffer that an execution filled, as input",
            "one buffer as input and output",
            "one buffer as two outputs",
            "one buffer as two inputs",
            "a device input with dimensions that are not the buffer's",
            "a device output with dimensions that are not the buffer's",
            "a result that does not fit its buffer: GENERAL_FAILURE",
            "timing is (-1, -1)",
            "bursts, callbacks and fences work",
        ),
    ),
    Group(
        "QOS",
        "qos",
        "Priorities and deadlines",
        (
            "getSupportedOperations is OK",
            "each launch is OK, also with a deadline that has passed",
            "an error in the callback comes without a model",
            "priority LOW prepares",
            "priority HIGH prepares",
            "a deadline of now: NONE or MISSED_DEADLINE_*",
            "an unlimited deadline prepares",
            "a short deadline: NONE or MISSED_DEADLINE_*",
            "there is a model exactly with NONE",
            "each execution is OK or fails with a service-specific error",
            "timing is (-1, -1)",
            "SYNC with a deadline of now: NONE or MISSED_DEADLINE_*",
            "SYNC with an unlimited deadline: NONE",
            "SYNC with a short deadline: NONE or MISSED_DEADLINE_*",
            "BURST with a deadline of now",
            "BURST with an unlimited deadline",
            "BURST with a short deadline",
            "no shapes, or one for each output, sufficient and right",
            "the data is the vector's wherever the status is NONE",
        ),
    ),
    Group(
        "STATIC",
        "basic",
        "Constants of the contract",
        (
            "a loop may take 2 s by default and 15 s at most",
            "operand types have the numbers of the HAL",
            "operation types have the numbers of the HAL",
        ),
    ),
    Group(
        "EXTRA",
        "extra",
        "Required by the HAL, not covered by the vendor test suite",
        (
            "notify comes exactly once, however a preparation ends",
            "times below -1 are refused by every call that has them",
            "loop timeouts of 0, of 15 s and above 15 s",
            "getExecutionInfo before the end, again, and after the prepared model is released",
            "fences in error before and after a launch; none of several may be ignored",
            "a duration counts from the last fence; the earlier of duration and deadline wins",
            "executions of one prepared model run in parallel; those of one burst or reusable execution do not",
            "type, version string, cache file numbers, extensions and performances are well formed",
            "a buffer is uninitialised after a failed copy and a failed execution",
            "tokens are unique, unknown after release, and their buffers outlive it while in use",
            "a device buffer keeps the shape that was last written",
            "hints: unknown extensions are ignored; repeated tokens and prefixes without a name do no harm",
            "extension types and operations; the rules of their prefix table",
            "models: locations, lengths, padding, extra parameters, dimensions, control flow, cycles, empty subgraphs",
            "requests: pools, regions, lengths, dimensions, omitted arguments, tokens",
            "outputs that overlap are refused",
            "a region that is too small or too large for a fully specified output is refused",
            "inputs are never modified; padding and bytes outside regions are never written",
            "each object can be used after what it was made of has been released",
            "the cache of a burst: reuse and release of identifiers",
            "cache files: truncation, order, unused tokens, descriptors closed after the callback",
            "a deadline that has passed is MISSED_DEADLINE_PERSISTENT, a loop that takes too long is *_TRANSIENT",
            "the end of a client frees what it held and wakes who waits",
            "the same model is prepared from many threads at once",
        ),
    ),
    Group(
        "NNHAL",
        "nnhal",
        "What the contract promises beyond the HAL (with --strict)",
        (
            "a preparation whose deadline has passed is not done: MISSED_DEADLINE_* and no model",
            "an execution whose deadline has passed is not done: MISSED_DEADLINE_*, and its outputs are untouched",
            "a refusal of a model names the rule broken, and the operand or operation",
            "a refusal of a request names the rule broken, and the argument",
            "callback and launch error of one refusal have the same status, reason and rule",
            "an error's gRPC code is the one of the contract's table, and its reason has at most 2 KiB",
            "`launched` comes first whenever the launch is OK, then one `notify`, then the stream ends",
            "a cancelled preparation notifies at most once, and those beside it exactly once",
            "prepared models of another session cannot be told from those that never were",
            "memories of another session cannot be told from those that never were",
            "released objects are gone; releasing again or unknown handles does no harm",
            "a closed session is lost for every call, and what it owned is gone",
            "a session whose stream broke can be taken up again",
            "a ReturnedPool without a size is as large as needed, for outputs alone",
            "a ReturnedPool of a fixed size obeys its capacity",
            "outputs that fit no message come back as Memory objects",
            "inline pools and memories without the write bit hold no outputs",
            "unset unions are refused",
            "an upload is checked against its digest, and then is read-only",
            "bytes whose digest the service knows need not be sent again",
            "memory can be written and read in any order, and nowhere outside it",
            "more inline bytes than the limit are refused, and the limit is named",
            "a prepared model brings the placement of each operation, and the operands of its inputs and outputs",
            "an unknown device is refused by every call that names one",
            "what is not offered says so with a reason and kind UNIMPLEMENTED",
            "a model from the service's cache is there after a restart (needs --restart-cmd)",
            "a NaN among the inputs reaches the outputs that depend on it",
            "what is said to be SAVED can be retrieved, and is a HIT: from the service's store and from files",
            "a miss says why, in the callback and in Cache.Check: no entry, another token, truncated, tampered",
            "Cache.List and Cache.Clear tell and remove the entries of the store",
            "a model from the cache keeps the priority that it was saved with",
            "files that cannot be saved to are told as NOT_SAVED, with a warning `cache-not-saved` and the reason",
            "a model from the cache brings the placement, inputs and outputs of the original",
            "data socket: nobody is let in without HELLO, a session that lives, and its secret",
            "data socket: memory is a sealed memfd that is not empty, one for each number of the session",
            "data socket: what is no frame ends its connection, and no other",
            "data socket: a request is refused at DEFINE as the same call is; one that is not there cannot run",
            "data socket: dropped memory stays where a request uses it; what a connection shared ends with it",
            "data socket: returned outputs lie in the area while they fit, and are Memory objects where they do not",
            "data socket: the execution of a client that goes is given up",
        ),
    ),
    Group(
        "X",
        "",
        "Allowances: how a check may end early without failing",
        (
            "not every operation is supported, and preparing ends with an error",
            "GENERAL_FAILURE where outputs are not fully specified",
            "no device buffer for a role",
            "the device needs no cache files",
            "caching: the model is not fully supported",
            "caching: nothing was saved",
            "an empty cache file has no bit to flip",
            "output 0 has at most one byte, so it cannot be too small",
            "a fenced execution with a zero-sized output must be refused",
            "the device is older than the vector",
            "buffers: a model cannot be prepared",
            "a deadline of now or shortly after: NONE and MISSED_DEADLINE_* are both right",
        ),
    ),
)


def _table() -> dict[str, Check]:
    table = {check.id: check for group in GROUPS for check in group.checks()}
    for number in range(1, len(GROUPS[-1].texts) + 1):  # allowances are X1, not X-01
        check = table.pop(f"X-{number:02d}")
        table[f"X{number}"] = Check(f"X{number}", "", check.text)
    return table


CHECKS = _table()
"""Every id."""

SUITES = tuple(dict.fromkeys(check.suite for check in CHECKS.values() if check.suite))
"""Names of the suites, in the order of the groups."""


def known(check: str) -> str:
    """An id, as it is.

    Raises:
        ValueError: there is no such id.
    """
    if check not in CHECKS:
        raise ValueError(f"there is no check {check!r}")
    return check


def as_markdown() -> str:
    """The table of all ids, group by group."""
    lines = []
    for group in GROUPS:
        suite = f" (suite `{group.suite}`)" if group.suite else ""
        lines += [f"### {group.name}: {group.about}{suite}", "", "| ID | What is checked |", "|---|---|"]
        for check in CHECKS.values():
            if check.id.rstrip("0123456789").rstrip("-") == group.name:
                lines.append(f"| {check.id} | {check.text} |")
        lines.append("")
    return "\n".join(lines)


def with_table(document: str) -> str:
    """A document with the present table between its markers.

    Raises:
        ValueError: it lacks the markers.
    """
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the document lacks {BEGIN} or {END}")
    return f"{before}{BEGIN}\n\n{as_markdown()}\n{END}{after}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes the table into a document."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--write", type=Path, required=True, metavar="FILE")
    path: Path = parser.parse_args(arguments).write
    path.write_text(with_table(path.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
