"""An agent whose modes, models and options can be set, told in every form there is."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from .wire import SESSION, Message, chunk, end, receive, send, update

LEVELS = [{"value": "low", "name": "Low"}, {"value": "high", "name": "High"}]
set_to: dict[str, Any] = {"mode": "ask", "model": "small", "level": "low", "loud": False}


def with_settings(opening: Message) -> Message:
    """Answer the request for a session, and those that set it up; the prompt that follows."""
    send(id=opening["id"], result={**_offers(), "sessionId": SESSION})
    set_to["mcp_servers"] = opening["params"]["mcpServers"]
    while (request := receive())["method"] != "session/prompt":
        _set(request["method"], request["params"])
        send(id=request["id"], result={"configOptions": _options()})
    return request


def tells_settings(prompt: Message) -> None:
    """What it was set to; then it changes its mode and its options itself."""
    chunk(json.dumps(set_to))
    update(sessionUpdate="current_mode_update", currentModeId="ask")
    set_to["loud"] = not set_to["loud"]
    update(sessionUpdate="config_option_update", configOptions=_options())
    update(sessionUpdate="session_info_update", title="A talk", updatedAt="2030-01-01T00:00:00Z")
    hint = {"hint": "what to look for"}
    commands = [
        {"name": "find", "description": "Finds", "input": hint},
        {"name": "go", "description": "Goes"},
    ]
    update(sessionUpdate="available_commands_update", availableCommands=commands)
    end(prompt)


def keeps_secrets(prompt: Message) -> None:
    """Write the servers that it was told of, and its variable TOKEN, into a file, and say nothing of them."""
    known = {"mcp_servers": set_to["mcp_servers"], "token": os.environ.get("TOKEN")}
    Path("known.json").write_text(json.dumps(known), encoding="utf-8")
    end(prompt)


def _set(method: str, params: Message) -> None:
    match method:
        case "session/set_mode":
            set_to["mode"] = params["modeId"]
        case "session/set_model":
            set_to["model"] = params["modelId"]
        case "session/set_config_option":
            set_to[params["configId"]] = params["value"]


def _offers() -> Message:
    modes = [{"id": name, "name": name.title()} for name in ("ask", "code")]
    models = [{"modelId": name, "name": name.title()} for name in ("small", "large")]
    return {
        "modes": {"currentModeId": set_to["mode"], "availableModes": modes},
        "models": {"currentModelId": set_to["model"], "availableModels": models},
        "configOptions": _options(),
    }


def _options() -> list[Message]:
    level = {"id": "level", "name": "Level", "type": "select", "currentValue": set_to["level"]}
    return [
        {**level, "options": [{"group": "all", "name": "All", "options": LEVELS}]},
        {"id": "loud", "name": "Loud", "type": "boolean", "currentValue": set_to["loud"]},
        {"id": "future", "name": "Future", "type": "slider", "currentValue": 7},
    ]
