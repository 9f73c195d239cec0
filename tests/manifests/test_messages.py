"""send_messages against real SMTP servers, Google Drive against a real HTTP server, and asking."""

from __future__ import annotations

import asyncio
import email
import json
import socket
import ssl
import unicodedata
from collections.abc import Iterator
from dataclasses import replace
from email import policy
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import trustme
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult
from hypothesis import given
from hypothesis import strategies as st

from gbnf_server.executors import AbsentPerson, Context, ScriptedPerson, run_executor
from gbnf_server.system.errors import ExecutorError
from support.executors import bundled_tools, run_of, snapshot, world
from support.server import serving

ME = {"GBNF_USER_EMAIL": "anna@example.org"}


def send(context: Context, *to: str, subject: str = "Ciao", body: str = "Testo") -> dict[str, Any]:
    return run_of("send_messages")({"to": list(to), "subject": subject, "body": body}, context)


def read(root: Path, file: str) -> Any:
    return email.message_from_bytes((root / file).read_bytes(), policy=policy.default)


# ── the outbox ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_message_lies_in_the_outbox(tmp_path: Path) -> None:
    context = world(tmp_path, settings=ME)
    result = send(
        context, "me", "Bruno <bruno@example.com>", "me", subject="Perché no?", body="Caffè\nalle 10\n"
    )
    assert result == {
        "sent_to": ["anna@example.org", "bruno@example.com"],
        "file": "outbox/20261121T103200-perche-no.eml",
    }
    message = read(tmp_path, result["file"])
    assert message["From"] == "anna@example.org"
    assert message["To"] == "anna@example.org, bruno@example.com"
    assert message["Subject"] == "Perché no?"
    assert message["Date"] == "Sat, 21 Nov 2026 10:32:00 +0100"
    assert message["Message-ID"].endswith("@example.org>")
    assert message.get_content().replace("\r\n", "\n") == "Caffè\nalle 10\n"
    assert (tmp_path / result["file"]).read_bytes().isascii()


def test_two_messages_of_one_second_are_two_files_and_undo_takes_them_out(tmp_path: Path) -> None:
    context = world(tmp_path)
    files = {send(context, "me")["file"] for _ in range(3)}
    assert len(files) == 3
    run_of("undo_last_turn")({}, replace(context, turn="second"))
    assert snapshot(tmp_path) == {}


@given(st.text(max_size=40), st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_any_subject_makes_one_message_unless_it_cannot_be_encoded(
    tmp_path_factory: pytest.TempPathFactory, subject: str, body: str
) -> None:
    root = tmp_path_factory.mktemp("space")
    try:
        result = send(world(root, settings=ME), "me", subject=subject, body=body)
    except ExecutorError:
        assert any("\ud800" <= char <= "\udfff" for char in subject)
        assert snapshot(root) == {}
        return
    message = read(root, result["file"])
    headers = "From To Subject Date Message-ID MIME-Version Content-Type Content-Transfer-Encoding"
    assert set(message.keys()) <= set(headers.split())
    assert message["To"] == "anna@example.org"
    plain = "".join(" " if unicodedata.category(char) == "Cc" else char for char in subject)
    assert message["Subject"].split() == plain.split()


@pytest.mark.parametrize(
    ("to", "reason"),
    [
        ("a@example.org\nBcc: x@example.org", "no address: it holds a line break"),
        ("a@example.org, b@example.org", "no email address"),
        ("a@exa mple.org", "no email address"),
        ("Anna <anna>", "no email address"),
        ("andré@example.org", "no email address"),
    ],
)
def test_refused(tmp_path: Path, to: str, reason: str) -> None:
    with pytest.raises(ExecutorError, match=reason):
        send(world(tmp_path), "me", to)
    assert snapshot(tmp_path) == {}


def test_a_domain_of_any_script_is_written_in_ascii(tmp_path: Path) -> None:
    assert send(world(tmp_path), "anna@bücher.example")["sent_to"] == ["anna@xn--bcher-kva.example"]


# ── SMTP ────────────────────────────────────────────────────────────────────────────────────────────────────


class Mailbox:
    """What a server received; it refuses the recipients whose name says so."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.farewell = "221 Bye"

    async def handle_QUIT(self, *_: Any) -> str:  # noqa: N802  # as below
        return self.farewell

    # aiosmtpd looks for these names, and gives all that they might want
    async def handle_RCPT(self, _: Any, __: Any, envelope: Any, address: str, *_options: Any) -> str:  # noqa: N802
        if address.startswith("refused"):
            return "550 no such user"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802
        if b"greylisted" in envelope.content:
            return "451 try later"
        self.messages.append(envelope)
        return "250 OK"


class Server:
    """A mail server on loopback, with a certificate of its own authority."""

    def __init__(self, folder: Path, security: str) -> None:
        authority = trustme.CA()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost").configure_cert(context)
        authority.cert_pem.write_to_path(str(folder / "authority.pem"))
        self.mailbox = Mailbox()

        def serve() -> SMTP:
            return SMTP(
                self.mailbox,
                tls_context=context if security == "starttls" else None,
                require_starttls=security == "starttls",
                auth_required=security == "starttls",
                auth_require_tls=security == "starttls",
                authenticator=lambda *given: AuthResult(success=given[4].password == b"right", handled=False),
            )

        class Controlled(Controller):  # type: ignore[misc]  # aiosmtpd ships no types
            def factory(self) -> SMTP:
                return serve()

            def _trigger_server(self) -> None:
                """The port is known only now; to have been called is all that the controller waits for."""
                self.port = self.server.sockets[0].getsockname()[1]
                socket.create_connection((self.hostname, self.port)).close()

        self.controller = Controlled(
            self.mailbox, hostname="127.0.0.1", port=0, ssl_context=context if security == "tls" else None
        )
        self.controller.start()
        self.settings = {
            **ME,
            "GBNF_SMTP_HOST": "localhost",
            "GBNF_SMTP_PORT": str(self.controller.port),
            "GBNF_SMTP_SECURITY": security,
            "GBNF_SMTP_CA_FILE": str(folder / "authority.pem"),
            "GBNF_SMTP_TIMEOUT_S": "10",
        }
        if security == "starttls":
            self.settings |= {"GBNF_SMTP_USER": "anna", "GBNF_SMTP_PASSWORD": "right"}

    def stop(self) -> None:
        """Stop once every connection has ended: the controller drops what is open, and Python warns of that
        later, in whichever test it then comes by."""

        async def ended() -> None:
            seen_none = 0
            while seen_none < 3:  # one that was just accepted is counted a turn later
                seen_none = 0 if getattr(self.controller.server, "_active_count", 0) else seen_none + 1
                await asyncio.sleep(0.005)

        asyncio.run_coroutine_threadsafe(ended(), self.controller.loop).result(30)
        self.controller.stop()


@pytest.fixture
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    started = Server(tmp_path, getattr(request, "param", "starttls"))
    yield started
    started.stop()


@pytest.mark.parametrize("server", ["starttls", "tls", "none"], indirect=True)
def test_a_message_is_sent_and_stays_sent(tmp_path: Path, server: Server) -> None:
    context = world(tmp_path / "space", settings=server.settings)
    result = send(context, "me", "bruno@example.com", subject="Perché", body="Caffè")
    assert result == {
        "sent_to": ["anna@example.org", "bruno@example.com"],
        "file": "sent/20261121T103200-perche.eml",
    }
    (envelope,) = server.mailbox.messages
    assert envelope.mail_from == "anna@example.org"
    assert envelope.rcpt_tos == ["anna@example.org", "bruno@example.com"]
    received = email.message_from_bytes(envelope.content, policy=policy.default)
    assert received["Subject"] == "Perché"
    assert received.get_content().strip() == "Caffè"
    assert read(tmp_path / "space", result["file"])["Message-ID"] == received["Message-ID"]
    outcome = run_of("undo_last_turn")({}, replace(context, turn="second"))
    assert outcome["not_undone"] == [
        "the message 'Perché' to anna@example.org, bruno@example.com, which was sent, cannot be undone"
    ]


def test_some_recipients_are_refused(tmp_path: Path, server: Server) -> None:
    context = world(tmp_path / "space", settings=server.settings)
    result = send(context, "me", "refused@example.com")
    assert result["sent_to"] == ["anna@example.org"]
    assert result["refused"] == {"refused@example.com": "550 no such user"}
    undone = run_of("undo_last_turn")({}, replace(context, turn="second"))
    assert undone["not_undone"] == [
        "the message 'Ciao' to anna@example.org, which was sent, cannot be undone"
    ]


def test_a_message_that_was_taken_is_sent_whatever_the_server_says_then(
    tmp_path: Path, server: Server
) -> None:
    server.mailbox.farewell = "451 not now"
    context = world(tmp_path / "space", settings=server.settings)
    result = send(context, "me")
    assert result["sent_to"] == ["anna@example.org"]
    assert (tmp_path / "space" / result["file"]).exists()
    assert len(server.mailbox.messages) == 1


@pytest.mark.parametrize(
    ("settings", "to", "body", "reason"),
    [
        ({}, "refused@example.com", "x", "refused every recipient: refused@example.com: 550 no such user"),
        ({}, "me", "greylisted", "did not take the message: .*try later"),
        ({"GBNF_SMTP_PASSWORD": "wrong"}, "me", "x", "refused GBNF_SMTP_USER"),
        ({"GBNF_SMTP_CA_FILE": None}, "me", "x", "certificate"),
        ({"GBNF_SMTP_SECURITY": "tls"}, "me", "x", "did not take the message"),
        ({"GBNF_SMTP_SECURITY": "none"}, "me", "x", "did not take|cannot do|refused"),
        ({"GBNF_SMTP_SECURITY": "sometimes"}, "me", "x", "'sometimes'; there are starttls, tls, none"),
        ({"GBNF_SMTP_PORT": "smtp"}, "me", "x", "are numbers"),
        ({"GBNF_SMTP_PORT": "1"}, "me", "x", "did not take the message: .*refused"),
        ({"GBNF_SMTP_CA_FILE": "/nonexistent"}, "me", "x", "did not take the message"),
    ],
)
def test_a_message_that_is_not_sent_leaves_no_copy(
    tmp_path: Path, server: Server, settings: dict[str, str | None], to: str, body: str, reason: str
) -> None:
    merged = {name: value for name, value in (server.settings | settings).items() if value is not None}
    context = world(tmp_path / "space", settings=merged)
    with pytest.raises(ExecutorError, match=reason) as caught:
        send(context, to, body=body)
    assert "right" not in str(caught.value)
    assert snapshot(tmp_path / "space") == {}
    assert server.mailbox.messages == []


# ── Google Drive ────────────────────────────────────────────────────────────────────────────────────────────


class Drive:
    """files.list of the Drive API v3, on loopback: pages of two, and answers that a test sets."""

    def __init__(self) -> None:
        self.requests: list[tuple[dict[str, list[str]], str]] = []
        self.files = [{"name": f"Plan {number}", "webViewLink": f"https://x/{number}"} for number in range(5)]
        self.answer: tuple[int, str] | None = None
        drive = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                url = urlsplit(self.path)
                assert url.path == "/drive/v3/files"
                query = parse_qs(url.query)
                drive.requests.append((query, self.headers["Authorization"]))
                start = int(query.get("pageToken", ["0"])[0])
                end = start + min(2, int(query["pageSize"][0]))
                page: dict[str, Any] = {"files": drive.files[start:end]}
                if end < len(drive.files):
                    page["nextPageToken"] = str(end)
                status, text = drive.answer or (200, json.dumps(page))
                body = text.encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002  # http.server's name
                pass

        self.handler = Handler
        self.url = ""


@pytest.fixture
def drive() -> Iterator[Drive]:
    started = Drive()
    with serving(started.handler) as started.url:
        yield started


def search(root: Path, url: str, **arguments: Any) -> dict[str, Any]:
    context = world(root, settings={"GBNF_GOOGLE_TOKEN": "t0ken", "GBNF_GOOGLE_API_URL": url})
    return run_of("find_files_google_workspace")(arguments, context)


def test_files_in_drive(tmp_path: Path, drive: Drive) -> None:
    result = search(tmp_path, drive.url, query="it's a \\ plan", limit=3)
    assert result["entries"] == ["Plan 0", "Plan 1", "Plan 2"]
    assert result["count"] == 3
    assert result["files"][0] == {"name": "Plan 0", "link": "https://x/0", "modified": ""}
    first, second = drive.requests
    assert first[1] == "Bearer t0ken"
    term = "'it\\'s a \\\\ plan'"
    assert first[0]["q"] == [f"(name contains {term} or fullText contains {term}) and trashed = false"]
    assert first[0]["pageSize"] == ["3"]
    assert second[0]["pageToken"] == ["2"]
    assert second[0]["pageSize"] == ["1"]


def test_all_of_drive(tmp_path: Path, drive: Drive) -> None:
    assert search(tmp_path, drive.url + "/", query="plan")["count"] == 5


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((401, "{}"), "refuses the token"),
        ((403, '{"error": {"message": "API not enabled"}}'), "refuses the search: API not enabled"),
        ((429, ""), "asked too often"),
        ((500, "<html>oops</html>"), "HTTP 500: <html>oops</html>"),
        ((302, ""), "HTTP 302"),
        ((200, "<html>"), "no JSON object"),
        ((200, "[]"), "no JSON object"),
    ],
)
def test_answers_of_drive_that_are_no_files(
    tmp_path: Path, drive: Drive, answer: tuple[int, str], reason: str
) -> None:
    drive.answer = answer
    with pytest.raises(ExecutorError, match=reason) as caught:
        search(tmp_path, drive.url, query="plan")
    assert "t0ken" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "nonsense", "http://[", "ftp://x"])
def test_no_drive_there(tmp_path: Path, url: str) -> None:
    with pytest.raises(ExecutorError, match=r"Google Drive at .* did not answer"):
        search(tmp_path, url, query="plan")


def test_without_a_token(tmp_path: Path) -> None:
    with pytest.raises(ExecutorError, match="not connected: set GBNF_GOOGLE_TOKEN"):
        run_of("find_files_google_workspace")({"query": "x"}, world(tmp_path))


# ── asking ──────────────────────────────────────────────────────────────────────────────────────────────────

ANSWERS = {
    "text": ("hello", "hello"),
    "credentials": ("hunter2", "<handle>"),
    "yes_no": ("y", True),
    "choice": ("2", "b"),
    "choice_with_preview": ("a", "a"),
    "multi_choice": ("1,2", ["a", "b"]),
    "number": ("3", 3),
    "date": ("2026-12-24", "2026-12-24"),
    "file_path": ("./x/y.txt", "x/y.txt"),
    "location": ("Torino", "Torino"),
}


def asked(kinds: list[str]) -> list[dict[str, Any]]:
    return [
        {
            "var": kind,
            "prompt": f"{kind}?",
            "schema": {"kind": kind, **({"options": ["a", "b"]} if "choice" in kind else {})},
        }
        for kind in kinds
    ]


@pytest.mark.slow
def test_a_form_with_every_kind_of_field(tmp_path: Path) -> None:
    person = ScriptedPerson({kind: given for kind, (given, _) in ANSWERS.items()})
    context = world(tmp_path, person=person)
    arguments = {"title": "All", "dialog": asked(list(ANSWERS))}
    found = run_executor(
        bundled_tools()["get_inputs"], arguments, context
    )  # it is the runner that puts the handle
    assert "hunter2" not in json.dumps(found)
    handle = found["values"]["credentials"]
    assert context.secret(handle) == "hunter2"
    result = json.loads(json.dumps(found).replace(handle, "<handle>"))
    assert result["values"] == {kind: value for kind, (_, value) in ANSWERS.items()}
    assert result["entries"] == [
        "hello", "<handle>", "yes", "b", "a", "a", "b", "3", "2026-12-24", "x/y.txt", "Torino",
    ]  # fmt: skip


def test_choices_come_from_an_earlier_step_where_the_field_has_none(tmp_path: Path) -> None:
    person = ScriptedPerson({"own": "1", "step": "1"})
    dialog = [
        {"var": "own", "prompt": "?", "schema": {"kind": "choice", "options": ["mine"]}},
        {"var": "step", "prompt": "?", "schema": {"kind": "choice", "options": []}},
    ]
    arguments = {"title": "T", "dialog": dialog, "entries": ["found"], "from_step": 1}
    result = run_of("get_inputs")(arguments, world(tmp_path, person=person))
    assert result["values"] == {"own": "mine", "step": "found"}


def test_a_name_can_be_asked_for_once(tmp_path: Path) -> None:
    with pytest.raises(ExecutorError, match="text is there twice"):
        run_of("get_inputs")({"title": "T", "dialog": asked(["text", "text"])}, world(tmp_path))


def test_where_there_is_nothing_to_choose_from_a_text_is_asked_for(tmp_path: Path) -> None:
    dialog = [{"var": "x", "prompt": "?", "schema": {"kind": "multi_choice"}}]
    context = world(tmp_path, person=ScriptedPerson({"x": "mine"}))
    assert run_of("get_inputs")({"title": "T", "dialog": dialog}, context)["entries"] == ["mine"]


def test_where_the_person_is(tmp_path: Path) -> None:
    person = ScriptedPerson({"location": "Torino"})
    context = world(tmp_path, person=person)
    assert run_of("request_location_from_user")({"reason": "To find shops"}, context)["location"] == "Torino"
    assert person.asked[0].title == "To find shops"
    with pytest.raises(ExecutorError, match="there is nobody"):
        run_of("request_location_from_user")({}, replace(context, person=AbsentPerson()))


def test_requests_for_tools_are_kept(tmp_path: Path) -> None:
    context = world(tmp_path)
    for need in ("book a train", "caffè\nnow"):
        assert run_of("request_new_executor")({"need": need}, context) == {"recorded": need}
    lines = (context.workspace.state / "requests.jsonl").read_text().splitlines()
    assert [json.loads(line)["need"] for line in lines] == ["book a train", "caffè\nnow"]
    assert json.loads(lines[0])["at"] == "2026-11-21T10:32:00+01:00"
