"""Email messages (RFC 5322): sent by SMTP if a server is configured, otherwise stored in ``outbox/``.

Settings: ``GBNF_USER_EMAIL`` (who "me" is, and the sender), ``GBNF_SMTP_HOST``, ``GBNF_SMTP_PORT``,
``GBNF_SMTP_SECURITY`` (starttls, the default; tls; none), ``GBNF_SMTP_USER``, ``GBNF_SMTP_PASSWORD``,
``GBNF_SMTP_CA_FILE`` (a private certificate authority), ``GBNF_SMTP_TIMEOUT_S``.

Copies of sent messages are in ``sent/``. Undo removes a message from the outbox; it cannot unsend one.
"""

from __future__ import annotations

import re
import unicodedata
from contextlib import suppress
from email import policy
from email.message import EmailMessage
from email.utils import format_datetime, make_msgid, parseaddr
from typing import TYPE_CHECKING, Any

from gbnf_server.executors import ExecutorError, Write

if TYPE_CHECKING:
    import smtplib

    from gbnf_server.executors import Context

SECURITY = {"starttls": 587, "tls": 465, "none": 25}
"""Security of the connection, and its default port."""

_ADDRESS = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9.-]{1,253}")


def run(arguments: dict[str, Any], context: Context) -> dict[str, Any]:
    """Send an email message, or put it in the outbox."""
    recipients = list(dict.fromkeys(_address(each, context) for each in arguments["to"]))
    message = _message(recipients, arguments, context)
    host = context.settings.get("GBNF_SMTP_HOST")
    journal = context.journal
    with journal.locked():
        file = _free_name("sent" if host else "outbox", arguments["subject"], context)
        write = Write(file, message.as_bytes(), new=True)
        if host is None:
            journal.apply([write], turn=context.turn, tool=context.tool, action=lambda: None)
            return {"sent_to": recipients, "file": file}
        refused = journal.apply(
            [write],
            turn=context.turn,
            tool=context.tool,
            action=lambda: _send(message, host, context),
            sent=lambda refused: _sent(arguments["subject"], recipients, refused),
        )
    return {"sent_to": _taken(recipients, refused), "file": file, **({"refused": refused} if refused else {})}


def _taken(recipients: list[str], refused: dict[str, str]) -> list[str]:
    return [address for address in recipients if address not in refused]


def _sent(subject: str, recipients: list[str], refused: dict[str, str] | None) -> str:
    """Describe what was sent. `refused`: the refused recipients, None if nothing is known."""
    was = "may have been" if refused is None else "was"
    return f"the message '{subject}' to {', '.join(_taken(recipients, refused or {}))}, which {was} sent,"


def _message(recipients: list[str], arguments: dict[str, Any], context: Context) -> EmailMessage:
    # no header may hold a line break or another control character
    subject = "".join(" " if unicodedata.category(char) == "Cc" else char for char in arguments["subject"])
    sender = _address("me", context)
    message = EmailMessage(policy=policy.SMTP.clone(cte_type="7bit"))  # every server accepts it
    try:
        message["From"] = sender
        message["To"] = ", ".join(recipients)
        message["Subject"] = subject
        message["Date"] = format_datetime(context.now())
        message["Message-ID"] = make_msgid(domain=sender.rpartition("@")[2])
        message.set_content(arguments["body"])
    except (ValueError, UnicodeError) as error:
        raise ExecutorError(f"the message cannot be written: {error}") from None
    return message


def _address(text: str, context: Context) -> str:
    """Return the bare address. Raises ExecutorError if there is none, or more than one."""
    given = context.user_email if text.strip().casefold() in {"me", "myself", "io"} else text
    if any(unicodedata.category(character) == "Cc" for character in given):
        raise ExecutorError(f"{given!r} is no address: it holds a line break or another control character")
    named = "<" in given or '"' in given
    address = parseaddr(given)[1] if named else given.strip()
    local, at, domain = address.rpartition("@")
    with suppress(UnicodeError):  # not a domain name: refused below
        address = f"{local}{at}{domain.encode('idna').decode()}"
    if (
        not _ADDRESS.fullmatch(address)
        or domain.startswith((".", "-"))
        or ".." in address
        or local.startswith(".")
    ):
        raise ExecutorError(
            f"'{given}' is no email address, such as anna@example.org; \"me\" is the person who asks"
        )
    return address


def _free_name(folder: str, subject: str, context: Context) -> str:
    plain = unicodedata.normalize("NFKD", subject).encode("ascii", "ignore").decode()
    slug = re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")[:40].strip("-") or "message"
    stem = f"{folder}/{context.now():%Y%m%dT%H%M%S}-{slug}"
    names = (f"{stem}.eml" if count == 1 else f"{stem}-{count}.eml" for count in range(1, 10_000))
    return next(name for name in names if not context.workspace.resolve(name).exists())


# ── SMTP ────────────────────────────────────────────────────────────────────────────────────────────────────


def _send(message: EmailMessage, host: str, context: Context) -> dict[str, str]:
    """Send a message, and return the refused recipients. Raises ExecutorError if it was not sent."""
    import smtplib  # noqa: PLC0415  # only who sends waits for it and for ssl

    settings, refused = context.settings, None
    try:
        with _connected(host, settings) as server:
            user = settings.get("GBNF_SMTP_USER")
            if user:
                server.login(user, settings.get("GBNF_SMTP_PASSWORD", ""))
            refused = server.send_message(message)
    except smtplib.SMTPRecipientsRefused as error:
        raise ExecutorError(
            f"the mail server {host} refused every recipient: {_words(error.recipients)}"
        ) from None
    except smtplib.SMTPAuthenticationError:
        raise ExecutorError(f"the mail server {host} refused GBNF_SMTP_USER and GBNF_SMTP_PASSWORD") from None
    except smtplib.SMTPNotSupportedError as error:
        raise ExecutorError(f"the mail server {host} cannot do what is set: {error}") from None
    except (smtplib.SMTPException, OSError) as error:
        if refused is None:  # otherwise only the end of the connection failed
            raise ExecutorError(f"the mail server {host} did not take the message: {error}") from None
    return {address: _reply(reply) for address, reply in (refused or {}).items()}


def _connected(host: str, settings: Any) -> smtplib.SMTP:
    import smtplib  # noqa: PLC0415  # only who sends waits for it and for ssl
    import ssl  # noqa: PLC0415  # few runs need it

    security = settings.get("GBNF_SMTP_SECURITY", "starttls")
    if security not in SECURITY:
        raise ExecutorError(f"GBNF_SMTP_SECURITY is '{security}'; there are {', '.join(SECURITY)}")
    try:
        port = int(settings.get("GBNF_SMTP_PORT", SECURITY[security]))
        timeout = float(settings.get("GBNF_SMTP_TIMEOUT_S", 30))
    except ValueError as error:
        raise ExecutorError(f"GBNF_SMTP_PORT and GBNF_SMTP_TIMEOUT_S are numbers: {error}") from None
    trust = ssl.create_default_context(cafile=settings.get("GBNF_SMTP_CA_FILE"))
    if security == "tls":
        return smtplib.SMTP_SSL(host, port, timeout=timeout, context=trust)
    server = smtplib.SMTP(host, port, timeout=timeout)
    if security == "starttls":
        server.starttls(context=trust)
    return server


def _words(refused: dict[str, tuple[int, bytes]]) -> str:
    return "; ".join(f"{address}: {_reply(reply)}" for address, reply in refused.items())


def _reply(reply: tuple[int, bytes]) -> str:
    return f"{reply[0]} {reply[1].decode(errors='replace')}"
