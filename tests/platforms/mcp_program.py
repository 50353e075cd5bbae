"""A small MCP server without the package mcp, of protocol 2025-06-18, that starts in no time and misbehaves on request.

``python mcp_program.py FOLDER [WORD…]``. It writes its process id into the folder, and reads there what tools it has
beside ``echo`` (``tools.txt``, one name a line). Words: ``dies`` ends at once; ``mute`` never answers; ``noisy`` writes
what is no message; ``stubborn`` ends neither with its input nor at SIGTERM; ``many`` has more tools than anybody needs;
``crash`` as a tool's name ends it; ``change`` tells that the list has changed.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

_OBJECT = {"type": "object", "properties": {"text": {"type": "string"}}}


def _tools(folder: Path, words: list[str]) -> list[dict[str, Any]]:
    listed = folder / "tools.txt"
    names = ["echo", "crash", "change", *(listed.read_text(encoding="utf-8").split() if listed.exists() else [])]
    tools: list[dict[str, Any]] = [{"name": name, "inputSchema": _OBJECT} for name in names]
    if "many" in words:
        tools += [{"name": f"tool{n}", "inputSchema": _OBJECT} for n in range(300)]
        tools[0]["inputSchema"] = {"type": "object", "description": "长" * 20_000}
    return tools


def _say(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def _answer(request: dict[str, Any], folder: Path, words: list[str]) -> None:
    asked = request.get("params") or {}
    result: dict[str, Any] = {}
    match request.get("method"):
        case "initialize":
            capabilities = {"tools": {"listChanged": True}}
            info = {"name": "program", "version": "1"}
            result = {"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": info}
        case "tools/list":
            result = {"tools": _tools(folder, words)}
        case "tools/call":
            if asked["name"] == "crash":
                os._exit(3)
            if asked["name"] == "change":
                _say({"method": "notifications/tools/list_changed"})
            result = {"content": [{"type": "text", "text": str(asked.get("arguments", {}).get("text"))}]}
        case _:
            _say({"id": request["id"], "error": {"code": -32601, "message": "Method not found"}})
            return
    _say({"id": request["id"], "result": result})


def main() -> None:
    """Answers until its input ends."""
    folder, words = Path(sys.argv[1]), sys.argv[2:]
    folder.mkdir(parents=True, exist_ok=True)
    if "stubborn" in words:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    (folder / f"pid-{os.getpid()}").touch()
    if "dies" in words:
        sys.exit("refused: " + " ".join(words))
    if "noisy" in words:
        print("Welcome! " + "x" * 1000, file=sys.stdout, flush=True)
        print(" ".join(words), file=sys.stderr, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request and "mute" not in words:
            _answer(request, folder, words)
    if "stubborn" in words:
        time.sleep(60)


if __name__ == "__main__":
    main()
