"""The server of the page: who gets it, what its headers forbid, and what it says of bad requests."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from gbnf import load_manifests
from gbnf_server.inspect.app import create_app
from gbnf_server.inspect.inspection import Inspection
from support.oracle import CHECKOUT

TOKEN = "token-of-the-test"  # not a secret
ALLOWED = {"Authorization": f"Bearer {TOKEN}"}
INSPECTION = Inspection("Tools", load_manifests(CHECKOUT / "manifests"))


@pytest.fixture
def client() -> Iterator[TestClient]:
    with TestClient(create_app(INSPECTION, TOKEN), base_url="http://127.0.0.1:1") as client:
        yield client


def test_the_page_needs_the_token(client: TestClient) -> None:
    assert client.get("/").status_code == 401
    assert client.get("/?token=").status_code == 401
    assert client.get("/?token=other").status_code == 401
    assert client.get(f"/?token={TOKEN}").status_code == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/tool?index=0"), ("POST", "/text"), ("POST", "/pool"), ("GET", "/tool?token=t")],
)
def test_the_other_addresses_need_it_in_a_header(client: TestClient, method: str, path: str) -> None:
    assert client.request(method, path, json={"text": ""}).status_code == 401
    assert client.request(method, f"{path}?token={TOKEN}", json={"text": ""}).status_code == 401


@pytest.mark.parametrize(
    "headers", [{"Host": "example.org"}, {"Origin": "http://example.org"}, {"Origin": "null"}]
)
def test_other_hosts_and_origins_are_refused(client: TestClient, headers: dict[str, str]) -> None:
    assert client.get(f"/?token={TOKEN}", headers=headers).status_code == 403
    assert client.post("/text", json={"text": ""}, headers=ALLOWED | headers).status_code == 403


def test_the_policy_allows_the_pages_own_script_and_style_only(client: TestClient) -> None:
    page = client.get(f"/?token={TOKEN}")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for tag in ("script", "style"):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page.text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert page.headers["referrer-policy"] == "no-referrer"
    assert page.headers["cache-control"] == "no-store"


def test_a_tool_a_text_and_a_pool_are_answered(client: TestClient) -> None:
    assert "create_dirs" in client.get("/tool?index=1", headers=ALLOWED).text
    assert 'id="d-root"' in client.get("/diagram?index=1&rule=root", headers=ALLOWED).text
    assert "Refused" in client.post("/text", json={"text": "x"}, headers=ALLOWED).text
    assert "of 15 tools" in client.post("/pool", json={"request": "notes", "limit": 3}, headers=ALLOWED).text


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/text", b"[]", 400),
        ("/text", b"{}", 400),
        ("/text", b'{"text": 1}', 400),
        ("/text", b"\xff", 400),
        ("/text", b"[" * 100_000, 400),
        ("/text", b'{"text": "' + b"x" * 2_000_000 + b'"}', 413),
        ("/pool", b'{"request": "x", "limit": true}', 400),
        ("/pool", b'{"request": "x", "limit": "3"}', 400),
    ],
)
def test_bad_bodies_get_a_message(client: TestClient, path: str, body: bytes, status: int) -> None:
    answer = client.post(path, content=body, headers=ALLOWED)
    assert answer.status_code == status
    assert answer.json()["error"]


@pytest.mark.parametrize("index", ["", "-1", "99", "x", "1" * 50, "²"])
def test_there_is_no_other_tool(client: TestClient, index: str) -> None:
    assert client.get("/tool", params={"index": index}, headers=ALLOWED).status_code == 404
    named = {"index": index, "rule": "root"}
    assert client.get("/diagram", params=named, headers=ALLOWED).status_code == 404


@pytest.mark.parametrize("rule", ["", "none", "<script>", "x" * 5000, "é\ud800"])
def test_there_is_no_other_rule(client: TestClient, rule: str) -> None:
    name = rule.encode("utf-8", "surrogatepass")
    answer = client.get("/diagram", params={"index": b"0", "rule": name}, headers=ALLOWED)
    assert answer.status_code == 404
    assert len(answer.text) < 300


@pytest.mark.parametrize("body", [{"request": "x", "limit": -5}, {"request": "\ud800", "limit": 10**30}])
def test_odd_requests_are_answered(client: TestClient, body: Any) -> None:
    for path, value in (("/pool", body), ("/text", {"text": body["request"] + "\0"})):
        assert client.post(path, content=json.dumps(value), headers=ALLOWED).status_code == 200
