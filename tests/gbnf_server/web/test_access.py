"""Who may send requests."""

from __future__ import annotations

import pytest

from gbnf_server.web.access import Access
from gbnf_server.web.errors import HttpError

KEYS = ("first-key", "second-key")


def status(access: Access, path: str = "/v1/models", **headers: str) -> int:
    try:
        access.check(path, {name.replace("_", "-"): value for name, value in headers.items()})
    except HttpError as error:
        return error.status
    return 200


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1:8000", 200),
        ("localhost:1", 200),
        ("LOCALHOST:8000", 200),
        ("[::1]:8000", 200),
        ("evil.example:8000", 403),
        ("127.0.0.1.evil.example", 403),
        ("[::1", 403),
        ("", 403),
    ],
)
def test_a_server_on_loopback_has_the_names_of_loopback(host: str, expected: int) -> None:
    assert status(Access.of("127.0.0.1"), host=host) == expected


def test_more_names_are_allowed_by_name() -> None:
    access = Access.of("192.168.0.7", KEYS, ["Box.lan"])
    for host in ("192.168.0.7:8000", "box.lan", "BOX.LAN:80", "localhost:8000"):
        assert status(access, host=host, x_api_key="first-key") == 200
    assert status(access, host="192.168.0.8", x_api_key="first-key") == 403


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_a_server_on_every_interface_has_any_name_unless_some_are_given(host: str) -> None:
    assert status(Access.of(host, KEYS), host="anything", x_api_key="first-key") == 200
    assert status(Access.of(host, KEYS, ["box"]), host="anything", x_api_key="first-key") == 403


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, 401),
        ({"authorization": "Bearer first-key"}, 200),
        ({"authorization": "bearer second-key"}, 200),
        ({"authorization": "Bearer  second-key "}, 200),
        ({"x_api_key": "second-key"}, 200),
        ({"authorization": "Basic first-key", "x_api_key": "first-key"}, 200),
        ({"authorization": "Bearer wrong", "x_api_key": "first-key"}, 401),
        ({"authorization": "Bearer first-ke"}, 401),
        ({"authorization": "Bearer first-keys"}, 401),
        ({"authorization": "first-key"}, 401),
        ({"authorization": "Bearer "}, 401),
        ({"x_api_key": "f\xefrst-key"}, 401),
    ],
)
def test_a_key_is_needed_if_there_are_keys(headers: dict[str, str], expected: int) -> None:
    access = Access.of("127.0.0.1", KEYS)
    assert status(access, host="localhost", **headers) == expected
    assert status(Access.of("127.0.0.1"), host="localhost", **headers) == 200
    assert status(access, "/health", host="localhost", **headers) == 200


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ("http://localhost:3000", 200),
        ("http://127.0.0.1", 200),
        ("https://chat.example", 200),
        ("https://evil.example", 403),
        ("https://chat.example.evil.example", 403),
        ("null", 403),
        ("", 403),
    ],
)
def test_web_pages_need_leave(origin: str, expected: int) -> None:
    access = Access.of("127.0.0.1", (), (), ["https://chat.example"])
    assert status(access, host="localhost", origin=origin) == expected
    assert status(Access.of("127.0.0.1", (), (), ["*"]), host="localhost", origin=origin) == 200
