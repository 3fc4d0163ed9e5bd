"""A client's connection to one agent process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib.metadata import version
from types import TracebackType
from typing import Any, Final, Self

from services.runner.acp.errors import (
    AUTH_REQUIRED,
    AgentAuthRequired,
    AgentError,
    AgentExited,
    AgentProtocolError,
    AgentRefused,
    AuthMethod,
)
from services.runner.acp.inbound import Inbound
from services.runner.acp.library import AGENT_METHODS, PROTOCOL_VERSION, schema
from services.runner.acp.lines import Message, NoiseLog
from services.runner.acp.messages import (
    AgentHandler,
    AgentInfo,
    NativeSession,
    Prompt,
    PromptResult,
    as_message,
    parse,
)
from services.runner.acp.offers import SWITCH, Offers, Option, options_of
from services.runner.acp.requests import CLIENT_CAPABILITIES
from services.runner.acp.rpc import Rpc, mark_retrieved
from services.runner.acp.stream import ByteStream
from services.runner.acp.transport import Transport, TransportLimits

DEFAULT_LIMITS: Final = TransportLimits()
# Of agents that are older than the category of options; the schema has it no more.
_SET_MODEL: Final = "session/set_model"


class AgentConnection:
    """Used as `async with`, or between `start` and `close`.

    Everything that is pending when the agent's output ends fails with the reason, after all
    that the agent sent before has been handled.
    """

    def __init__(
        self, stream: ByteStream, handler: AgentHandler, limits: TransportLimits = DEFAULT_LIMITS
    ) -> None:
        """Reads nothing before `start`."""
        self._transport = Transport(stream, limits)
        self._inbound = Inbound(handler)
        self._rpc = Rpc(self._transport, self._inbound, limits.unanswered_requests)
        self._auth_methods: tuple[AuthMethod, ...] = ()
        self._tasks: tuple[asyncio.Task[Any], ...] = ()
        self._closed: asyncio.Future[AgentError] = asyncio.get_running_loop().create_future()

    @property
    def noise(self) -> NoiseLog:
        """Lines on the agent's stdout that are no messages."""
        return self._transport.noise

    @property
    def backlog(self) -> int:
        """Messages received and not yet handled."""
        return self._transport.backlog

    @property
    def is_closed(self) -> bool:
        """Whether it has ended: nothing comes any more, and nothing is sent."""
        return self._closed.done()

    def start(self) -> None:
        """Begin to read and to handle."""
        self._tasks = (
            asyncio.create_task(self._transport.pump()),
            asyncio.create_task(self._consume()),
        )

    async def close(self) -> None:
        """Stop at once; what is pending fails. Not to be called by the handler."""
        self._end(AgentExited("the connection was closed"))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._rpc.wait_for_tasks()

    async def __aenter__(self) -> Self:
        """See `start`."""
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """See `close`."""
        await self.close()

    async def wait_closed(self) -> AgentError:
        """Why the connection ended, once it has."""
        return await asyncio.shield(self._closed)

    async def drained(self) -> None:
        """Wait until all that was received up to now has been handled."""
        await self._transport.until_handled()

    async def initialize(self, *, timeout: float) -> AgentInfo:
        """Agree on the protocol's version and exchange capabilities."""
        method = AGENT_METHODS["initialize"]
        params = {
            "protocolVersion": PROTOCOL_VERSION,
            "clientCapabilities": CLIENT_CAPABILITIES,
            "clientInfo": {"name": "moorage", "title": "Moorage", "version": version("moorage")},
        }
        result = await self._rpc.request(method, params, timeout)
        spoken = as_message(result).get("protocolVersion")
        if spoken != PROTOCOL_VERSION:
            raise AgentProtocolError(
                f"the agent speaks version {spoken} of the protocol, not {PROTOCOL_VERSION}"
            )
        info = AgentInfo.of(result)
        self._auth_methods = info.auth_methods
        return info

    async def new_session(
        self, cwd: str, mcp_servers: Sequence[Message] = (), *, timeout: float
    ) -> NativeSession:
        """Open a native session; `cwd` is absolute. Raises AgentAuthRequired."""
        method = AGENT_METHODS["session_new"]
        params = {"cwd": cwd, "mcpServers": list(mcp_servers)}
        raw = as_message(await self._request_session(method, params, timeout))
        opened = parse(schema.NewSessionResponse, method, {"sessionId": raw.get("sessionId")})
        return NativeSession(opened.session_id, Offers.of(raw), raw)

    async def load_session(
        self, session_id: str, cwd: str, mcp_servers: Sequence[Message] = (), *, timeout: float
    ) -> NativeSession:
        """Open a native session of before; what the agent replays is marked so. Raises AgentAuthRequired."""
        method = AGENT_METHODS["session_load"]
        params = {"sessionId": session_id, "cwd": cwd, "mcpServers": list(mcp_servers)}
        self._inbound.loading.add(session_id)
        try:
            result = await self._request_session(method, params, timeout, session_id)
        finally:
            self._inbound.loading.discard(session_id)
        return NativeSession(session_id, Offers.of(as_message(result)), as_message(result))

    async def set_mode(self, session_id: str, mode_id: str, *, timeout: float) -> None:
        """Set a mode that the agent offers."""
        params = {"sessionId": session_id, "modeId": mode_id}
        await self._rpc.request(AGENT_METHODS["session_set_mode"], params, timeout)

    async def set_model(self, session_id: str, model_id: str, *, timeout: float) -> None:
        """Set a model, of an agent that offers models beside its options."""
        params = {"sessionId": session_id, "modelId": model_id}
        await self._rpc.request(_SET_MODEL, params, timeout)

    async def set_option(
        self, session_id: str, option: Option, value: str, *, timeout: float
    ) -> tuple[Option, ...]:
        """Set an option to one of its values; all options as they stand then."""
        params: Message = {"sessionId": session_id, "configId": option.id, "value": value}
        if option.is_switch:
            params |= {"type": SWITCH, "value": value == "true"}
        result = await self._rpc.request(AGENT_METHODS["session_set_config_option"], params, timeout)
        return options_of(as_message(result).get("configOptions"))

    def prompt(self, session_id: str, blocks: Sequence[Message], *, meta: Message | None = None) -> Prompt:
        """Begin to send a prompt; one at a time in a session. `meta` is for `traceparent` and the like."""
        if session_id in self._inbound.prompts:
            raise RuntimeError(f"native session {session_id} has a prompt already")
        params: Message = {"sessionId": session_id, "prompt": list(blocks)}
        if meta:
            params["_meta"] = meta
        call = self._rpc.call(AGENT_METHODS["session_prompt"], params, lambda: self._end_prompt(session_id))
        result: asyncio.Future[PromptResult] = asyncio.get_running_loop().create_future()
        result.add_done_callback(mark_retrieved)
        prompt = Prompt(session_id, call.flushed, result)
        self._inbound.gates.allow(session_id)
        self._inbound.prompts[session_id] = prompt
        call.answer.add_done_callback(lambda answer: self._settle(prompt, result, answer))
        return prompt

    async def cancel(self, session_id: str) -> bool:
        """Cancel the prompt once it is flushed; False when none is open, and nothing was sent.

        Questions of the agent that are open, or come before the prompt's end, are answered
        `cancelled`. The prompt's result tells how the agent took it.
        """
        prompt = self._inbound.prompts.get(session_id)
        if prompt is None:
            return False
        await prompt.flushed
        if self._inbound.prompts.get(session_id) is not prompt:
            return False
        sent = self._rpc.notify(AGENT_METHODS["session_cancel"], {"sessionId": session_id})
        self._inbound.gates.withdraw(session_id)
        await sent
        return True

    async def request(self, method: str, params: Message, *, timeout: float) -> Any:
        """Ask for something that has no method of its own here; the result as it came."""
        return await self._rpc.request(method, params, timeout)

    async def _request_session(
        self, method: str, params: Message, timeout: float, loaded: str | None = None
    ) -> Any:
        def answered() -> None:
            if loaded is not None:
                self._inbound.loading.discard(loaded)

        try:
            return await self._rpc.request(method, params, timeout, answered)
        except AgentRefused as refused:
            raise self._with_methods(refused) from refused

    async def _consume(self) -> None:
        self._end(await self._rpc.consume())

    def _end(self, reason: AgentError) -> None:
        self._rpc.end(reason)
        self._inbound.gates.close()
        self._transport.finish()
        if not self._closed.done():
            self._closed.set_result(reason)

    def _end_prompt(self, session_id: str) -> None:
        self._inbound.prompts.pop(session_id, None)
        self._inbound.gates.withdraw(session_id)

    def _settle(
        self, prompt: Prompt, result: asyncio.Future[PromptResult], answer: asyncio.Future[Any]
    ) -> None:
        if self._inbound.prompts.get(prompt.session_id) is prompt:
            self._end_prompt(prompt.session_id)
        try:
            result.set_result(PromptResult.of(answer.result()))
        except AgentRefused as refused:
            result.set_exception(self._with_methods(refused))
        except AgentError as error:
            result.set_exception(error)

    def _with_methods(self, refused: AgentRefused) -> AgentRefused:
        if refused.code == AUTH_REQUIRED:
            return AgentAuthRequired.after(refused, self._auth_methods)
        return refused
