"""Responses that later requests continue, in a database that several gateways may share.

Invariant: who is not the owner of a response cannot read, continue or remove it.
"""

from __future__ import annotations

import copy
import json
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, TypeAlias, TypeVar

from gbnf_server.gateway.api import nothing
from gbnf_server.system.errors import SetupError
from gbnf_server.web.errors import HttpError
from gbnf_server.web.limits import memory_of
from gbnf_server.web.logs import log_error

_TABLE = """
CREATE TABLE IF NOT EXISTS gbnf_responses (
    owner TEXT, id TEXT, previous TEXT, body TEXT, items TEXT, size BIGINT, used BIGINT,
    PRIMARY KEY (owner, id)
);
CREATE INDEX IF NOT EXISTS gbnf_responses_used ON gbnf_responses (used)
"""
_EVICT = """
DELETE FROM gbnf_responses WHERE (owner, id) = (
    SELECT owner, id FROM gbnf_responses WHERE owner = (
        SELECT owner FROM gbnf_responses GROUP BY owner ORDER BY SUM(size) DESC LIMIT 1
    ) ORDER BY used LIMIT 1
)
"""
_CHAIN = """
WITH RECURSIVE chain (id, previous, place) AS (
    SELECT id, previous, 0 FROM gbnf_responses WHERE owner = ? AND id = ?
    UNION ALL
    SELECT each.id, each.previous, place + 1
    FROM gbnf_responses AS each JOIN chain ON each.id = chain.previous WHERE each.owner = ?
)
SELECT id, previous FROM chain ORDER BY place DESC
"""
_TEXTS = "SELECT items, body FROM gbnf_responses WHERE owner = ? AND id = ?"
_KEPT_NS = 30 * 24 * 3600 * 10**9
"""How long a database keeps a response that is not used: as long as OpenAI."""
_WAIT_S = 5
_POSTGRES = ("postgresql://", "postgres://")

_Execute: TypeAlias = Callable[..., list[Any]]
_Value = TypeVar("_Value")


class ResponseStore:
    """The latest responses, as their owner sees them; see `of`.

    `url`: a file for SQLite, or the `postgresql://` URL of a database; by default they are in the memory of
    this process. A database keeps them for 30 days after their last use. In memory there are at most
    `responses`, of `size` bytes of JSON in all: the owner with the most bytes loses the one that was not used
    for the longest time. May be used by several threads. Raises SetupError, and, where the database fails
    later, HttpError (503).
    """

    def __init__(self, url: str = "", *, responses: int = 1000, size: int = 64 << 20) -> None:
        self.is_shared = bool(url)
        self._responses, self._size = responses, size
        self._owner = ""
        self._reserve: Callable[[int], None] = nothing
        self._used: dict[str, Mapping[str, Mapping[str, Any]]] = {}
        self._database = _Database(url)

    def of(self, owner: str, reserve: Callable[[int], None] = nothing) -> Self:
        """Return the same store as a request of `owner` sees it.

        `reserve`: called before so many more bytes of memory are used; it may raise HttpError.
        """
        view = copy.copy(self)
        view._owner, view._reserve, view._used = owner, reserve, {}  # noqa: SLF001  # of this class
        return view

    def put(self, body: Mapping[str, Any], items: Sequence[Mapping[str, Any]]) -> bool:
        """Add a response, and the items that its request added to the conversation.

        Return whether it is stored: not if it is too large, or if the database fails, which is logged.
        """
        texts = json.dumps(body), json.dumps(items)
        size, now = sum(map(len, texts)), time.time_ns()
        if not self.is_shared and (size > self._size or self._responses < 1):
            return False

        def put(run: _Execute) -> None:
            if self.is_shared:
                run("DELETE FROM gbnf_responses WHERE used < ?", now - _KEPT_NS)
            while not self.is_shared:
                [(count, used)] = run("SELECT COUNT(*), COALESCE(SUM(size), 0) FROM gbnf_responses")
                if count < self._responses and used + size <= self._size:
                    break
                run(_EVICT)
            values = self._owner, body["id"], body["previous_response_id"], *texts, size, now
            run("INSERT INTO gbnf_responses VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", *values)

        try:
            self._database.run(put)
        except HttpError as error:
            log_error(error)
            return False
        return True

    def get(self, response_id: str) -> dict[str, Any] | None:
        """Return the response with an id, None if it is not stored."""
        use = "UPDATE gbnf_responses SET used = ? WHERE owner = ? AND id = ? RETURNING body"
        rows = self._run(use, time.time_ns(), self._owner, response_id)
        return self._read(rows[0][0]) if rows else None

    def delete(self, response_id: str) -> bool:
        """Remove a response. Return whether it was stored."""
        delete = "DELETE FROM gbnf_responses WHERE owner = ? AND id = ? RETURNING id"
        return bool(self._run(delete, self._owner, response_id))

    def item(self, item_id: str) -> Mapping[str, Any] | None:
        """Return the item of an output with an id, None if it is not stored."""
        _, _, rest = item_id.partition("_")
        response_id = f"resp_{rest.partition('_')[0]}"
        if response_id not in self._used:  # a request may refer to each item of a response
            response = self.get(response_id)
            output = () if response is None else response["output"]
            self._used[response_id] = {item["id"]: item for item in output}
        item = self._used[response_id].get(item_id)
        self._reserve(len(json.dumps(item)))  # it may be referred to again and again
        return item

    def conversation(self, response_id: str) -> list[Mapping[str, Any]] | None:
        """Return the items up to the end of a response, None if one of the responses is not stored."""

        def use(run: _Execute) -> list[Any]:
            rows = run(_CHAIN, self._owner, response_id, self._owner)
            for identifier, _ in rows:
                values = time.time_ns(), self._owner, identifier
                run("UPDATE gbnf_responses SET used = ? WHERE owner = ? AND id = ?", *values)
            return rows

        chain = self._database.run(use)
        if not chain or chain[0][1] is not None:
            return None
        items: list[Mapping[str, Any]] = []
        for identifier, _ in chain:  # one by one, since the texts of all may be more than the memory
            rows = self._run(_TEXTS, self._owner, identifier)
            if not rows:  # removed meanwhile
                return None
            for text in rows[0]:
                value = self._read(text)
                items += value if isinstance(value, list) else value["output"]
        return items

    def _run(self, statement: str, *values: Any) -> list[Any]:
        return self._database.run(lambda run: run(statement, *values))

    def _read(self, text: str) -> Any:
        self._reserve(memory_of(text, sum(map(text.count, "[{,:"))))
        return json.loads(text)


def item_id(prefix: str, response_id: str, index: int) -> str:
    """Return the id of an item, which tells the response that it is of."""
    return f"{prefix}_{response_id.removeprefix('resp_')}_{index}"


class _Database:
    """A connection to a database of SQLite or PostgreSQL; one that breaks is opened again."""

    def __init__(self, url: str) -> None:
        self._url, self._is_postgres = url, url.startswith(_POSTGRES)
        self._lock = threading.Lock()
        self._connection: Any = None
        self._errors: type[Exception] = sqlite3.Error
        if self._is_postgres:
            import psycopg  # noqa: PLC0415  # an extra

            self._errors = psycopg.Error
        try:
            self._connection = self._connect()
        except self._errors as error:
            raise SetupError(f"the store of responses cannot be opened: {error}. Check --store.") from None

    def run(self, work: Callable[[_Execute], _Value]) -> _Value:
        """Return what `work` returns, in one transaction; once more if the database fails."""
        with self._lock:
            for is_last in (False, True):
                try:
                    if self._connection is None:
                        self._connection = self._connect()
                    self._execute("BEGIN" if self._is_postgres else "BEGIN IMMEDIATE")
                    value = work(self._execute)
                    self._execute("COMMIT")
                except BaseException as error:
                    if self._url:
                        self._close()
                        self._connection = None
                    else:
                        self._connection.rollback()
                    if not isinstance(error, self._errors):
                        raise
                    if is_last:
                        problem = f"the store of responses fails: {error}"
                        raise HttpError(503, problem, "store_failed", retry_after=5) from error
                else:
                    return value
        raise AssertionError("the last attempt returns or raises")

    def _connect(self) -> Any:
        if self._is_postgres:
            import psycopg  # noqa: PLC0415  # an extra

            connection: Any = psycopg.connect(
                self._url,
                autocommit=True,
                connect_timeout=_WAIT_S,
                tcp_user_timeout=_WAIT_S * 1000,
                options=f"-c statement_timeout={_WAIT_S}s",
            )
        else:
            connection = sqlite3.connect(
                self._url or ":memory:", _WAIT_S, isolation_level=None, check_same_thread=False
            )
            if self._url:
                connection.execute("PRAGMA journal_mode=WAL")
        self._close = weakref.finalize(self, connection.close)
        for statement in _TABLE.split(";"):
            connection.execute(statement)
        return connection

    def _execute(self, statement: str, *values: Any) -> list[Any]:
        text = statement.replace("?", "%s") if self._is_postgres else statement
        cursor = self._connection.execute(text, values)
        return [] if cursor.description is None else cursor.fetchall()
