"""Mistakes on the command line, and the one line that reports each.

In arguments, variables and messages, {digits} is a model, {service} the address of a service, {live} the path of a
socket that a service listens on, {busy} the address of a port in use, {closed} an address where nothing listens, {ssh}
the address of a server that does not speak gRPC, and {grpc} that of a gRPC server of another kind. Other files are
those of `places`. "<*>" in a message stands for any text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

STARTS_A_SERVICE = "'serve', '--embedded'"


@dataclass(frozen=True)
class Mistake:
    """A command line that fails.

    Attributes:
        command: the arguments, separated by spaces; '' is an empty one.
        message: the line on stderr, without "nnhal: ".
        code: the exit code.
        environment: additional environment variables.
        config: the text of nnhal.toml in the current folder, if there is one.
        missing: packages that are not installed.
        starts: text in the command of the one process that it has to start; "" if the cause is known without one.
    """

    command: str
    message: str
    code: int = 2
    environment: Mapping[str, str] = field(default_factory=dict)
    config: str = ""
    missing: str = ""
    starts: str = ""

    @property
    def arguments(self) -> Sequence[str]:
        """The arguments as a list."""
        return ["" if argument == "''" else argument for argument in self.command.split()]

    @property
    def label(self) -> str:
        """The command, shortened, with what else makes the mistake."""
        details = [*self.environment, self.config.partition("=")[0], self.missing]
        return " ".join(filter(None, (self.command[:60], *details)))


NO_ADDRESS = "--target: invalid address {!r}; expected HOST:PORT or unix:PATH; see `nnhal info --help`"
START_ONE = "is the service running? start one with `nnhal serve`"
EXPECTED = "expected HOST:PORT or unix:PATH"

ADDRESSES = [
    *(
        Mistake(f"info --target {text or repr(text)}", NO_ADDRESS.format(text))
        for text in ("", "localhost", "localhost:", ":1", "50051", "http://localhost:1", "127.0.0.1:99999", "unix:")
    ),
    Mistake(
        f"info --target unix:{'x' * 200}",
        f"--target: the path of 'unix:{'x' * 200}' has 200 bytes; at most <*> are possible; see `nnhal info --help`",
    ),
    *(
        Mistake(
            f"{command} --target {{closed}}",
            f"DEVICE_UNAVAILABLE: no response from {{closed}}: connection refused; {START_ONE}",
            1,
        )
        for command in ("info", "backends", "run {digits}")
    ),
    Mistake(
        "conformance --suite basic --target {closed}",
        f"no response from {{closed}}: connection refused; {START_ONE}",
        1,
    ),
    Mistake(
        "info --target no-such-host.invalid:50051",
        "DEVICE_UNAVAILABLE: no response from no-such-host.invalid:50051: the host name cannot be resolved (<*>)",
        1,
    ),
    Mistake(
        "info --target unix:missing.sock",
        f"DEVICE_UNAVAILABLE: no response from unix:missing.sock: there is no such socket; {START_ONE}",
        1,
    ),
    Mistake(
        "info --target unix:stale.sock",
        f"DEVICE_UNAVAILABLE: no response from unix:stale.sock: connection refused; {START_ONE}",
        1,
    ),
    *(
        Mistake(
            f"info --target unix:{path}",
            f"DEVICE_UNAVAILABLE: no response from unix:{path}: the path is not that of a socket",
            1,
        )
        for path in ("text", "folder")
    ),
    Mistake("info --target {ssh}", "DEVICE_UNAVAILABLE: no gRPC service responds at {ssh} (<*>)", 1),
    Mistake("info --target {grpc}", "GENERAL_FAILURE: {grpc} is a gRPC service, but not one of nnhal", 1),
    Mistake(
        "run {digits} --target {service} --device npu",
        "INVALID_ARGUMENT: there is no device 'npu'; expected one of nnhal",
        1,
    ),
    Mistake(
        "conformance --suite basic --target {service} --device npu",
        "INVALID_ARGUMENT: there is no device 'npu'; expected one of nnhal",
        1,
    ),
]

MODELS = [
    Mistake("run none.tflite", "cannot read none.tflite: No such file or directory"),
    Mistake("explain folder", "cannot read folder: Is a directory"),
    Mistake("compare empty", "empty: the file is empty; expected a .tflite file"),
    Mistake("run text", "text: is not a .tflite file: the identifier TFL3 is missing"),
    Mistake(
        "run truncated.tflite",
        "truncated.tflite: is damaged or truncated: model: bytes 26554 to 26558 are outside of the 3000 bytes",
    ),
]

INPUTS = [
    Mistake("run {digits} --input none.npy", "cannot read none.npy: No such file or directory"),
    Mistake("run {digits} --input folder", "cannot read folder: Is a directory"),
    Mistake(
        "run {digits} --input empty", "cannot read empty: the file is empty; expected a .npy file or a .npz archive"
    ),
    Mistake(
        "run {digits} --input text", "cannot read text: it has another format; expected a .npy file or a .npz archive"
    ),
    Mistake("run {digits} --input names.npz", "no input is named 'images'; there are image"),
    Mistake(
        "run {digits} --input names.npz --input input.npy",
        "--input names.npz is a .npz archive, which has all inputs; give no other --input",
    ),
    Mistake("run {digits} --input truncated.npz", "cannot read truncated.npz: the archive is damaged or encrypted"),
    Mistake(
        "run {digits} --shape image=1,9",
        "digits.tflite: tensor 0 ('image') cannot have shape [1, 9]: the file has [1, 8, 8, 1]",
    ),
    Mistake("run {digits} --shape photo=1,8,8,1", "digits.tflite: has no input 'photo'; there are 'image'"),
    Mistake(
        "run {digits} --shape image",
        "invalid --shape 'image': expected NAME=SIZES, for example image=1,224,224,3",
    ),
    Mistake(
        "run {digits} --normalize 127.5",
        "invalid --normalize '127.5': expected MEAN/STD, for example 127.5/127.5, or a number for each channel",
    ),
    Mistake(
        "run {digits} --image image.png --normalize 1,2,3/1",
        "--normalize 1,2,3/1 needs a model with one float input of images of as many channels, and divisors that are "
        "not 0; this one takes TENSOR_FLOAT32 [1, 8, 8, 1]",
    ),
    Mistake("run {digits} --draw drawn.png", "--draw needs an image, the picture to draw on"),
    Mistake(
        "run {digits} --image image.png --draw none/drawn.png",
        "cannot write none/drawn.png: there is no folder none",
    ),
    Mistake("run {digits} --input truncated.npy", "cannot read truncated.npy: the file is damaged or truncated"),
    Mistake("run {digits} --input objects.npy", "cannot read objects.npy: it has Python objects; expected numbers"),
    Mistake("run {digits} --input words.npy", "cannot read words.npy: its elements are <U3; expected numbers"),
    Mistake("run {digits} --input {unreadable}", "cannot read {unreadable}: <*>"),
    Mistake("run {digits} --input shape.npy", "input 0 (image) has shape [1, 9, 8, 1]; the model takes [1, 8, 8, 1]"),
    Mistake("run {digits} --input input.npy --input input.npy", "2 inputs given; the model takes 1"),
    Mistake("run {digits} --input input.npy --image image.png", "give files or --input, not both"),
    Mistake("run {digits} --image none.png", "cannot read the image none.png: No such file or directory"),
    Mistake("run {digits} --image text", "cannot read the image text: unknown image format"),
    Mistake("run {digits} --image empty", "cannot read the image empty: unknown image format"),
    Mistake("run {digits} --image truncated.png", "cannot read the image truncated.png: <*>"),
    Mistake("run {digits} --image folder", "there are no images, sounds (.wav) or arrays (.npy, .npz) in folder"),
    Mistake("run {digits} --labels none.txt", "cannot read the labels none.txt: No such file or directory"),
    Mistake("run {digits} --labels text", "text has 2 labels; expected 10, one for each class of the model"),
    Mistake("run {digits} --labels empty", "empty has 0 labels; expected 10, one for each class of the model"),
    Mistake(
        "run {digits} --labels binary", "cannot read the labels binary: expected text in UTF-8, one label per line"
    ),
]

OUTPUTS = [
    Mistake("run {digits} --output text", "cannot write to text: text is not a folder"),
    Mistake("run {digits} --trace none/trace.json", "cannot write none/trace.json: there is no folder none"),
    Mistake("explain {digits} --html folder", "cannot write folder: it is a folder"),
    Mistake("conformance --html none/page.html", "cannot write none/page.html: there is no folder none"),
    Mistake("conformance --json text/results.json", "cannot write text/results.json: there is no folder text"),
    Mistake("conformance --reduce text", "cannot write to text: text is not a folder"),
]

ARGUMENTS = [
    Mistake("frobnicate", "no such command 'frobnicate'; see `nnhal --help`"),
    Mistake("--frobnicate", "no such option: --frobnicate; see `nnhal --help`"),
    Mistake("run", "missing argument 'MODEL'; see `nnhal run --help`"),
    Mistake("run a b", "cannot read a: No such file or directory"),
    Mistake("run a --targt b", "no such option: --targt; did you mean --target?; see `nnhal run --help`"),
    Mistake("run a --repeat", "option '--repeat' requires an argument; see `nnhal <*>--help`"),
    Mistake(
        "run a --repeat x", "--repeat: invalid value 'x': expected an integer of at least 1; see `nnhal run --help`"
    ),
    Mistake(
        "run a --repeat 0", "--repeat: invalid value '0': expected an integer of at least 1; see `nnhal run --help`"
    ),
    *(
        Mistake(
            f"run a --deadline {text}",
            f"--deadline: invalid value '{text}': expected a number of at least 0; see `nnhal run --help`",
        )
        for text in ("-1", "nan", "inf", "1s")
    ),
    Mistake(
        "run {digits} --target {service} --deadline 0",
        "MISSED_DEADLINE_PERSISTENT: the deadline had passed before the preparation began",
        1,
    ),
    Mistake(
        "conformance --mode try",
        "--mode: 'try' is not one of 'check', 'support', 'perf'; see `nnhal conformance --help`",
    ),
    Mistake("conformance --suite none", "unknown suite 'none'; the suites are basic, <*>"),
    Mistake("conformance --path none", "unknown path 'none'; the paths are SYNC, <*>, all, NDK, and NDK/BUFFER"),
    Mistake("conformance --select none", "the options select no checks"),
    Mistake("conformance --vectors folder", "cannot read vectors: no vectors (*.jsonl.gz) below folder"),
    Mistake("conformance --backends-path none", "--backends-path: none is not a folder"),
    Mistake(
        "conformance --self-test --select requantisation",
        "no fault matches 'requantisation'; similar names of <*>: requantization-off-by-one<*>",
    ),
    Mistake(
        "conformance --jobs many",
        "--jobs: invalid value 'many': expected an integer of at least 1; see `nnhal conformance --help`",
    ),
    Mistake("conformance --target {service} --backend CpuRef", "--backend<*>; omit --target"),
    Mistake(
        "compare {digits} --backend Npu",
        "DEVICE_UNAVAILABLE: the embedded service did not start: there is no backend 'Npu'; there are CpuAcc, CpuRef, "
        "GpuAcc",
        1,
        starts=STARTS_A_SERVICE,
    ),
    Mistake("backends frobnicate", "no such command 'frobnicate'; see `nnhal backends --help`"),
    Mistake("backends doctor none.so", "none.so is not a file"),
    Mistake("new-backend A! Npu", "the vendor 'A!' must be letters and digits, with a letter first", starts="skeleton"),
    Mistake("new-backend Acme Npu --folder text", "cannot write to text: File exists", starts="skeleton"),
    Mistake(
        "new-backend Acme Npu --lang rust",
        "--lang: 'rust' is not one of 'python', 'c'; see `nnhal new-backend --help`",
    ),
]

CACHE = [
    Mistake("cache list --cache-dir none", "--cache-dir: there is no folder none"),
    Mistake("cache list --cache-dir text", "the cache text is not a directory", 1),
    Mistake("cache verify --cache-key-file none", "the key file none cannot be used: No such file or directory", 1),
    Mistake(
        "cache verify --cache-key-file empty",
        "other users may access the key file empty (mode 644); make it 600",
        1,
    ),
    Mistake("cache clear abc", "no token starts with 'abc'", 1),
    Mistake("cache export none/all.tar", "the archive none/all.tar cannot be used: No such file or directory", 1),
    Mistake("cache import none.tar", "the archive none.tar cannot be used: No such file or directory", 1),
    Mistake("cache import folder", "the archive folder cannot be used: Is a directory", 1),
    Mistake("cache import empty", "empty is not an archive of the cache: empty file", 1),
    Mistake("cache import text", "text is not an archive of the cache: <*>", 1),
    Mistake(
        "cache import text --cache-bytes 0",
        "--cache-bytes: invalid value '0': expected an integer of at least 1; see `nnhal cache import --help`",
    ),
]

SERVE = [
    Mistake(
        "serve --listen {busy}", "cannot listen on {busy}: address already in use; is another service running there?"
    ),
    Mistake(
        "serve --listen unix:{live}",
        "cannot listen on unix:{live}: address already in use; is another service running there?",
    ),
    Mistake("serve --listen unix:text", "cannot listen on unix:text: the path exists and is not a socket"),
    Mistake("serve --listen unix:none/socket", "cannot listen on unix:none/socket: no such file or directory"),
    Mistake("serve --listen 192.0.2.1:0 --insecure", "cannot listen on 192.0.2.1:0: cannot assign requested address"),
    Mistake(
        "serve --listen 0.0.0.0:0",
        "0.0.0.0:0 can be reached from other machines; that needs TLS (--tls-cert, --tls-key) or --insecure",
    ),
    Mistake("serve --listen localhost", f"--listen: invalid address 'localhost'; {EXPECTED}"),
    Mistake("serve --backends Npu", "there is no backend 'Npu'; there are CpuAcc, CpuRef, GpuAcc"),
    Mistake("serve --device ''", "--device: the name of a device is empty"),
    Mistake("serve --device a --device a", "--device: 'a' is given twice; expected different names"),
    Mistake("serve --limit sessions", "--limit: invalid limit 'sessions'; expected NAME=VALUE"),
    Mistake("serve --limit session=1", "unknown limit 'session'; expected one of <*>"),
    Mistake("serve --threads 0", "--threads: invalid value '0': expected at least 4"),
    Mistake("serve --cache-bytes 4G", "--cache-bytes: invalid value '4G': expected an integer"),
    Mistake(
        "serve --log-level loud", "--log-level: invalid value 'loud': expected 'DEBUG', 'INFO', 'WARNING' or 'ERROR'"
    ),
    Mistake("serve --cache-key-file none", "the key file none cannot be used: No such file or directory"),
    Mistake("serve --config none.toml", "cannot read none.toml: No such file or directory"),
    Mistake("serve --config folder", "cannot read folder: Is a directory"),
    Mistake("serve --config binary", "binary is not valid TOML: it is not text in UTF-8"),
    Mistake("serve", "nnhal.toml: unknown setting 'listens'; docs/settings.md lists the settings", config="listens=1"),
    Mistake("serve", "nnhal.toml is not valid TOML: <*>", config="= 1"),
    Mistake(
        "serve",
        "nnhal.toml: policy[default][sesions]: there is no such name",
        config="policy = {default = {sesions = 1}}",
    ),
    Mistake("serve", "nnhal.toml: warm: invalid value 'x': expected an integer", config="warm = 'x'"),
    Mistake("serve", "nnhal.toml: listen: invalid address 'here'; " + EXPECTED, config="listen = 'here'"),
    Mistake("serve", f"NNHAL_LISTEN: invalid address 'here'; {EXPECTED}", environment={"NNHAL_LISTEN": "here"}),
    Mistake(
        "serve",
        "NNHAL_INSECURE: invalid value 'maybe': expected true or false",
        environment={"NNHAL_INSECURE": "maybe"},
    ),
    Mistake(
        "serve",
        "NNHAL_DATA_USERS[0]: invalid value 'root': expected an integer",
        environment={"NNHAL_DATA_USERS": "root"},
    ),
    Mistake(
        "cache import text",
        "NNHAL_CACHE_BYTES: invalid value 'x': expected an integer",
        environment={"NNHAL_CACHE_BYTES": "x"},
    ),
]

EXTRAS = [
    Mistake(command, f"this command needs more packages: pip install 'nnhal[{extra}]'", missing=package)
    for command, package, extra in (
        ("info --target {service}", "rich", "cli"),
        ("run {digits} --image image.png", "PIL", "cli"),
        ("explain {digits} --target {service} --html page.html", "jinja2", "cli"),
        ("serve --listen 127.0.0.1:0", "grpc_reflection", "server"),
    )
]

MISTAKES = [*ADDRESSES, *MODELS, *INPUTS, *OUTPUTS, *ARGUMENTS, *CACHE, *SERVE, *EXTRAS]
