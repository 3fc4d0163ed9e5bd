"""What agents have their client do: as the demo agent asks, and as the connection answers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from acp import schema

from services.runner.acp.errors import INVALID_REQUEST, RESOURCE_NOT_FOUND
from services.runner.acp.lines import Message
from services.runner.acp.requests import ClientRequest
from services.runner.acp.rpc import RequestError
from services.runner.audience import Audience
from tests.agents.peers import Agent, connected, rogue_command, text_blocks


class Desk:
    """A client that answers by the kind of a request: a result, an error, or nothing as long as it waits."""

    def __init__(self, agent: Agent, **answers: Message | RequestError) -> None:
        self._answers = answers
        self.released = asyncio.Event()
        agent.listener.serve = self.serve

    async def serve(self, request: ClientRequest) -> Message:
        if isinstance(request, schema.ReleaseTerminalRequest):
            self.released.set()
        answer = self._answers.get(type(request).__name__)
        if answer is None:
            await asyncio.Event().wait()
        if isinstance(answer, RequestError):
            raise answer
        return answer or {}


def asked(agent: Agent) -> list[Message]:
    """What the agent wanted, without the names that are the same everywhere."""
    return [
        request.model_dump(by_alias=True, exclude_none=True, exclude={"session_id"})
        for request in agent.listener.served
    ]


async def test_the_demo_agent_reads_and_writes_through_its_client(demo: Agent, tmp_path: Path) -> None:
    Desk(demo, ReadTextFileRequest={"content": "old\ntext\n"}, WriteTextFileRequest={})
    assert (
        await demo.say("read a.txt", "READ /b from line 2 for 3 lines", "write sub/c some words")
        == "end_turn"
    )
    assert demo.listener.text() == "old\ntext\nold\ntext\nThe client wrote sub/c.\n"
    assert asked(demo) == [
        {"path": f"{tmp_path}/a.txt"},
        {"path": "/b", "line": 2, "limit": 3},
        {"path": f"{tmp_path}/sub/c", "content": "some words\n"},
    ]


async def test_the_demo_agent_tells_what_its_client_refuses(demo: Agent) -> None:
    missing = RequestError(RESOURCE_NOT_FOUND, "a.txt does not exist", {"reason": "FILE_NOT_FOUND"})
    full = RequestError(INVALID_REQUEST, "no room")
    Desk(demo, ReadTextFileRequest=missing, WriteTextFileRequest=full, CreateTerminalRequest=full)
    assert await demo.say("read a.txt", "write a.txt x", "terminal date") == "end_turn"
    assert demo.listener.text().splitlines() == [
        "The client did not read a.txt: a.txt does not exist",
        "The client did not write a.txt: no room",
        "The client gave no terminal: no room",
    ]


async def test_the_demo_agent_runs_a_command_in_a_terminal(demo: Agent, tmp_path: Path) -> None:
    desk = Desk(
        demo,
        CreateTerminalRequest={"terminalId": "t1"},
        WaitForTerminalExitRequest={"exitCode": 0, "signal": None},
        ReleaseTerminalRequest={},
    )
    assert await demo.say("terminal make test") == "end_turn"
    assert demo.listener.text() == "The command ended with exit code 0.\n"
    await desk.released.wait()
    updates = [update.raw["update"] for update in demo.listener.updates if update.kind == "tool_call_update"]
    assert updates[0]["content"] == [{"type": "terminal", "terminalId": "t1"}]
    assert updates[1]["status"] == "completed"
    # What was said stands in the terminal, which the client shows.
    assert "content" not in updates[1]
    assert asked(demo)[0] == {"command": "make test", "cwd": str(tmp_path), "outputByteLimit": 65536}


async def test_the_demo_agent_releases_its_terminal_when_it_is_cancelled(demo: Agent) -> None:
    desk = Desk(demo, CreateTerminalRequest={"terminalId": "t1"}, ReleaseTerminalRequest={})
    prompt = demo.connection.prompt(demo.session_id, text_blocks("terminal sleep 1000"))
    await demo.listener.until(lambda listener: len(listener.served) == 2)
    assert await demo.connection.cancel(demo.session_id)
    assert (await prompt.result).stop_reason == "cancelled"
    await desk.released.wait()


async def test_updates_go_on_beside_a_request_and_one_that_is_given_up_is_an_error(tmp_path: Path) -> None:
    async with connected(*rogue_command("asks_for_a_file"), directory=tmp_path) as agent:
        await agent.open(tmp_path)
        served: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

        async def serve(request: ClientRequest) -> Message:
            return await served

        agent.listener.serve = serve
        prompt = agent.connection.prompt(agent.session_id, text_blocks("go"))
        await agent.listener.until(lambda listener: "beside" in listener.text())
        assert len(agent.listener.served) == 1
        served.cancel()
        assert (await prompt.result).stop_reason == "end_turn"
        code, words = json.loads(agent.listener.text().removeprefix("beside"))
        assert (code, words) == (-32603, "the turn has ended")


async def test_all_that_is_served_is_offered_to_agents(tmp_path: Path) -> None:
    async with connected(*rogue_command("tells_capabilities"), directory=tmp_path) as agent:
        await agent.open(tmp_path)
        assert await agent.say("go") == "end_turn"
        offered = json.loads(agent.listener.text())
    assert offered == {
        "fs": {"readTextFile": True, "writeTextFile": True},
        "terminal": True,
        "elicitation": {"form": {}, "url": {}},
        "session": {"configOptions": {"boolean": {}}},
    }


async def test_between_turns_nothing_is_done_for_an_agent() -> None:
    with pytest.raises(RequestError, match="no turn is in progress") as refused:
        await Audience().on_request(schema.ReadTextFileRequest(session_id="native", path="/a"))
    assert refused.value.error == {"code": INVALID_REQUEST, "message": "no turn is in progress"}
