"""Addresses: accepted forms, and which are local."""

import pytest

from nnhal.address import MAX_UNIX_PATH_BYTES, Address
from tests.nnhal.unix_sockets import needs_unix_sockets


@pytest.mark.parametrize(
    ("text", "address", "is_local"),
    [
        pytest.param("unix:/tmp/socket", Address("unix", path="/tmp/socket"), True, marks=needs_unix_sockets),
        ("localhost:50051", Address("tcp", "localhost", 50051), True),
        ("127.0.0.2:0", Address("tcp", "127.0.0.2", 0), True),
        ("[::1]:1", Address("tcp", "::1", 1), True),
        ("0.0.0.0:1", Address("tcp", "0.0.0.0", 1), False),
        ("[::]:1", Address("tcp", "::", 1), False),
        ("example.com:65535", Address("tcp", "example.com", 65535), False),
    ],
)
def test_valid_addresses(text: str, address: Address, is_local: bool) -> None:
    assert Address.parse(text) == address
    assert address.is_local == is_local


@pytest.mark.parametrize(
    "text",
    ["", "unix:", "localhost", ":1", "localhost:", "localhost:http", "localhost:65536", "http://localhost:1", "a b:1"],
)
def test_invalid_addresses(text: str) -> None:
    with pytest.raises(ValueError, match="expected HOST:PORT or unix:PATH"):
        Address.parse(text)


@needs_unix_sockets
def test_path_of_a_unix_socket_is_limited() -> None:
    assert Address.parse("unix:" + "x" * MAX_UNIX_PATH_BYTES).path == "x" * MAX_UNIX_PATH_BYTES
    with pytest.raises(ValueError, match=f"has {MAX_UNIX_PATH_BYTES + 1} bytes; at most {MAX_UNIX_PATH_BYTES}"):
        Address.parse("unix:" + "x" * (MAX_UNIX_PATH_BYTES + 1))


@pytest.mark.parametrize(("text", "expected"), [("localhost:0", "localhost:7"), ("[::1]:0", "[::1]:7")])
def test_with_port(text: str, expected: str) -> None:
    assert Address.parse(text).with_port(7) == expected


@pytest.mark.parametrize(
    ("address", "text", "expected"),
    [
        ("localhost:1", ":2", "localhost:2"),
        ("[::1]:1", ":2", "[::1]:2"),
        ("example.com:1", ":2", "example.com:2"),
        ("example.com:1", "other.example.com:2", "other.example.com:2"),
        pytest.param("unix:/tmp/socket", "unix:/tmp/socket.1", "unix:/tmp/socket.1", marks=needs_unix_sockets),
        pytest.param("unix:/tmp/socket", "localhost:2", "localhost:2", marks=needs_unix_sockets),
        pytest.param("localhost:1", "unix:/tmp/socket", "unix:/tmp/socket", marks=needs_unix_sockets),
    ],
)
def test_redirects(address: str, text: str, expected: str) -> None:
    assert Address.parse(address).redirected(text) == expected


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("localhost:1", ""),
        ("localhost:1", ":"),
        ("localhost:1", ":65536"),
        ("localhost:1", "http://localhost:2"),
        ("unix:/tmp/socket", ":2"),
        ("example.com:1", "localhost:2"),
        ("example.com:1", "unix:/tmp/socket"),
    ],
)
def test_invalid_redirects(address: str, text: str) -> None:
    with pytest.raises(ValueError, match=r"expected HOST:PORT|on this machine"):
        Address.parse(address).redirected(text)
