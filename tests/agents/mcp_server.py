"""A server of the Model Context Protocol on stdin and stdout, with one tool; standard library only."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

TOOL = {
    "name": "lighthouse",
    "description": "Tells what the lighthouse of a harbour is called",
    "inputSchema": {"type": "object", "properties": {"harbour": {"type": "string"}}},
}


def result_of(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """What a request is answered with."""
    if method == "initialize":
        info = {"name": "harbours", "version": "1"}
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": info,
        }
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        text = f"{os.environ.get('KEEPER', 'nobody')} keeps the light of {params['arguments']['harbour']}"
        return {"content": [{"type": "text", "text": text}]}
    return {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        answer = {
            "jsonrpc": "2.0",
            "id": message["id"],
            "result": result_of(message["method"], message.get("params") or {}),
        }
        print(json.dumps(answer), flush=True)
