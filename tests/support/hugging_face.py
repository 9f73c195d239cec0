"""A server that speaks the part of the Hugging Face Hub's API that a download uses."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from urllib.parse import unquote, urlsplit

from support.server import serving

COMMIT = "0123456789abcdef0123456789abcdef01234567"
DAMAGED = b"damaged on its way"
"""A text of files that is sent in capitals."""
GATED, PRIVATE = "owner/gated", "owner/private"


class _Handler(BaseHTTPRequestHandler):
    repos: Mapping[str, Mapping[str, bytes]]
    served: list[str]

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, *, body: bool) -> None:
        parts = unquote(urlsplit(self.path).path).strip("/").split("/")
        if parts[:2] == ["api", "models"]:
            repo = "/".join(parts[2:4])
            if repo == GATED:
                self._send(200, json.dumps(self._tree({"model-Q4_K_M.gguf": b""})).encode(), body)
            elif repo in self.repos:
                self._send(200, json.dumps(self._tree(self.repos[repo])).encode(), body)
            else:
                self._send(401, b"{}", body, {"X-Error-Code": "RepoNotFound"})
            return
        repo, file = "/".join(parts[:2]), "/".join(parts[4:])
        if repo == GATED:
            self._send(403, b"{}", body, {"X-Error-Code": "GatedRepo"})
        elif file in self.repos.get(repo, {}):
            content = self.repos[repo][file].replace(DAMAGED, DAMAGED.upper())
            if body:
                self.served.append(file)
            etag = hashlib.sha256(content).hexdigest()
            self._send(200, content, body, {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT})
        else:
            self._send(404, b"{}", body, {"X-Error-Code": "EntryNotFound"})

    def _tree(self, files: Mapping[str, bytes]) -> list[dict[str, object]]:
        return [
            {
                "type": "file",
                "path": name,
                "size": len(content),
                "oid": hashlib.sha1(content).hexdigest(),
                "lfs": {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 1},
            }
            for name, content in files.items()
        ]

    def _send(self, status: int, content: bytes, body: bool, headers: Mapping[str, str] = {}) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body:
            self.wfile.write(content)


@contextmanager
def hugging_face(repos: Mapping[str, Mapping[str, bytes]]) -> Iterator[tuple[str, list[str]]]:
    """Serve repositories of files; yield the URL, and the list of downloaded files."""
    served: list[str] = []
    handler = type("Handler", (_Handler,), {"repos": repos, "served": served})
    with serving(handler) as url:
        yield url, served
