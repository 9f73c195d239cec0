"""An MCP server over stdio that behaves badly in one way, for tests.

Only the standard library, so it starts fast.

python hostile_mcp_server.py MODE
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

MODE = sys.argv[1]
TOOL = {"name": "ping", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}


def write(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def complain(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def reply(request: dict[str, Any], result: Any) -> None:
    write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}))


def refuse(request: dict[str, Any], message: str = "no", code: int = -32601) -> None:
    error = {"code": code, "message": message}
    write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}))


def answer(request: dict[str, Any]) -> None:
    match request["method"]:
        case "initialize" if MODE == "unsupported":
            refuse(request)
        case "initialize":
            version = "1999-01-01" if MODE == "old" else "2025-06-18"
            about = {"capabilities": {"tools": {}}, "serverInfo": {"name": "hostile", "version": "1"}}
            reply(request, {"protocolVersion": version, **about})
        case "tools/list" if MODE == "endless-pages":
            number = int(request.get("params", {}).get("cursor") or 0)
            tools = [{**TOOL, "name": f"t{number}_{index}"} for index in range(500)]
            reply(request, {"tools": tools, "nextCursor": str(number + 1)})
        case "tools/list" if MODE == "same-page":
            reply(request, {"tools": [TOOL], "nextCursor": "again"})
        case "tools/list" if MODE == "no-list":
            refuse(request)
        case "tools/list" if MODE == "bad-list":
            reply(request, {"tools": "none"})
        case "tools/list":
            reply(request, {"tools": [TOOL]})
        case "tools/call":
            call(request)
        case _:
            refuse(request)


def call(request: dict[str, Any]) -> None:
    match MODE:
        case "garbage":
            write("this is not JSON")
            write('{"jsonrpc": "2.0", "id": "other", "result": {}}')
            write("[1, 2]")
            os.write(1, b"\xff\xfe\n\x00\n")
            reply(request, {"content": [{"type": "text", "text": "pong"}]})
        case "endless-line":
            while True:
                sys.stdout.write("x" * (1 << 20))
        case "endless-errors":
            for _ in range(64):
                sys.stderr.write("y" * (1 << 20))
            reply(request, {"content": [{"type": "text", "text": "pong"}]})
        case "bad-result":
            reply(request, {"content": 7})
        case "refuses":
            refuse(request, "no such\ntool", -32602)
        case "deaf":
            os.close(0)
            time.sleep(60)
        case "mute":
            os.close(1)
            time.sleep(60)
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "once":
            complain("once is enough")
            reply(request, {"content": [{"type": "text", "text": "pong"}]})
            sys.exit(3)
        case "asks":
            question = {"message": "Choose", "requestedSchema": {"type": "object", "properties": {}}}
            write(json.dumps({"jsonrpc": "2.0", "id": 99, "method": "sampling/createMessage", "params": {}}))
            write(
                json.dumps({"jsonrpc": "2.0", "id": 98, "method": "elicitation/create", "params": question})
            )
            replies = [json.loads(sys.stdin.readline()) for _ in range(2)]
            texts = sorted("refused" if "error" in each else each["result"]["action"] for each in replies)
            reply(request, {"content": [{"type": "text", "text": " ".join(texts)}]})
        case "child":
            child = subprocess.Popen(["sleep", "60"], start_new_session=True)
            reply(request, {"content": [{"type": "text", "text": f"{os.getpid()} {child.pid}"}]})
        case _:
            reply(request, {"content": [{"type": "text", "text": "pong"}]})


def tidy_up(*_: object) -> None:
    complain("tidied up")
    os._exit(0)


def main() -> None:
    if MODE == "exits":
        complain("no configuration found")
        sys.exit(2)
    if MODE == "silent":
        time.sleep(60)
    if MODE == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if MODE == "tidy":
        signal.signal(signal.SIGTERM, tidy_up)
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request and "method" in request:
            answer(request)
    if MODE in {"stubborn", "tidy"}:
        time.sleep(60)


main()
