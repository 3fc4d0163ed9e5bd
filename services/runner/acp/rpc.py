"""JSON-RPC over a transport: requests matched with their answers, one consumer for all that comes."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from services.common.logs import get_logger
from services.runner.acp.errors import (
    INTERNAL_ERROR,
    AgentError,
    AgentProtocolError,
    AgentRefused,
    AgentTimeout,
    HandlerFailed,
)
from services.runner.acp.lines import Message
from services.runner.acp.transport import Transport

_log: Final = get_logger(__name__)
_T = TypeVar("_T")

# Called and awaited beside the stream: the result of a request of the agent, or RequestError.
Answer = Callable[[], Awaitable[Message]]


@dataclass(frozen=True, slots=True)
class Call:
    """A request on its way. Both futures fail with an AgentError, and may be left unawaited."""

    id: int
    method: str
    # Every byte of the request is on its way to the agent.
    flushed: asyncio.Future[None]
    # The agent's result, whatever it is.
    answer: asyncio.Future[Any]
    # Called with the answer's arrival, before anything that the agent sent later is looked at.
    answered: Callable[[], None]


class Peer(Protocol):
    """Who takes what the agent sends by itself."""

    async def on_notification(self, method: str, params: Message) -> None:
        """In order, one at a time."""
        ...

    async def on_request(self, method: str, params: Message) -> Answer:
        """In order; or RequestError."""
        ...


class RequestError(Exception):
    """Answers a request of the agent with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Message | None = None) -> None:
        """The code is JSON-RPC's or the protocol's."""
        super().__init__(message)
        self.code = code
        self.data = data

    @property
    def error(self) -> Message:
        """As the agent gets it."""
        error: Message = {"code": self.code, "message": str(self)}
        return error if self.data is None else {**error, "data": self.data}


class Rpc:
    """Both directions of JSON-RPC."""

    def __init__(self, transport: Transport, peer: Peer, max_unanswered: int) -> None:
        """`max_unanswered` requests of the agent at a time; more end the connection."""
        self._transport = transport
        self._peer = peer
        self._max_unanswered = max_unanswered
        self._ids = itertools.count(1)
        self._calls: dict[int, Call] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._flushing: set[asyncio.Future[None]] = set()
        self._ended: AgentError | None = None

    def call(self, method: str, params: Message, answered: Callable[[], None] = lambda: None) -> Call:
        """Begin to send a request."""
        loop = asyncio.get_running_loop()
        call = Call(next(self._ids), method, loop.create_future(), loop.create_future(), answered)
        call.flushed.add_done_callback(lambda flushed: self._check_flush(call, flushed))
        call.answer.add_done_callback(mark_retrieved)
        self._calls[call.id] = call
        self._send({"jsonrpc": "2.0", "id": call.id, "method": method, "params": params}, call.flushed)
        return call

    async def request(
        self, method: str, params: Message, timeout: float, answered: Callable[[], None] = lambda: None
    ) -> Any:
        """Send a request and wait for its result."""
        call = self.call(method, params, answered)
        try:
            async with asyncio.timeout(timeout):
                return await call.answer
        except TimeoutError as error:
            raise AgentTimeout(f"the agent did not answer {method} within {timeout:g} s") from error
        finally:
            self._calls.pop(call.id, None)

    def notify(self, method: str, params: Message) -> asyncio.Future[None]:
        """Begin to send a notification; to be awaited for its flush."""
        flushed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        flushed.add_done_callback(mark_retrieved)
        self._send({"jsonrpc": "2.0", "method": method, "params": params}, flushed)
        return asyncio.shield(flushed)

    async def consume(self) -> AgentError:
        """Handle all that comes, in order; return why it ended."""
        try:
            while True:
                await self._handle(await self._transport.receive())
                self._transport.mark_handled()
        except AgentError as error:
            return error
        except Exception as error:  # noqa: BLE001 - whatever the handler met, its user is told
            _log.warning("what the agent sent could not be taken", exc_info=error)
            failed = HandlerFailed(f"what the agent sent could not be taken: {error}")
            failed.__cause__ = error
            return failed

    def end(self, reason: AgentError) -> None:
        """No answer comes any more."""
        self._ended = self._ended or reason
        for flushed in list(self._flushing):
            _fail(flushed, reason)
        while self._calls:
            _, call = self._calls.popitem()
            _fail(call.answer, reason)
        for task in self._tasks:
            task.cancel()

    async def wait_for_tasks(self) -> None:
        """After `end`: until nothing runs any more."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(mark_retrieved)
        return task

    def _send(self, message: Message, flushed: asyncio.Future[None]) -> None:
        if self._ended:
            _fail(flushed, self._ended)
            return
        self._flushing.add(flushed)
        flushed.add_done_callback(self._flushing.discard)
        self._spawn(self._flush(message, flushed))

    async def _flush(self, message: Message, flushed: asyncio.Future[None]) -> None:
        try:
            await self._transport.send(message)
        except AgentError as error:
            _fail(flushed, error)
        else:
            _set(flushed, None)

    def _check_flush(self, call: Call, flushed: asyncio.Future[None]) -> None:
        """What was never sent is never answered."""
        if error := flushed.exception():
            self._calls.pop(call.id, None)
            _fail(call.answer, error)

    async def _handle(self, message: Message) -> None:
        method = message.get("method")
        if method is None:
            self._handle_answer(message)
            return
        params = message.get("params", {})
        params = params if isinstance(params, dict) else {"params": params}
        if "id" in message:
            await self._handle_request(message["id"], str(method), params)
        else:
            await self._peer.on_notification(str(method), params)

    def _handle_answer(self, message: Message) -> None:
        call_id = message.get("id")
        call = self._calls.pop(call_id, None) if isinstance(call_id, int) else None
        if call is None:
            _log.warning("the agent answered what was not asked", id=call_id)
            return
        # Agents may answer before this side has seen its own write return.
        _set(call.flushed, None)
        call.answered()
        if "error" in message:
            _fail(call.answer, refusal(call.method, message["error"]))
        else:
            _set(call.answer, message.get("result"))

    async def _handle_request(self, request_id: object, method: str, params: Message) -> None:
        if len(self._tasks) >= self._max_unanswered:
            raise AgentProtocolError(f"the agent has {len(self._tasks)} requests open at the same time")
        try:
            answer = await self._peer.on_request(method, params)
        except RequestError as error:
            answer = partial(_refuse, error)
        self._spawn(self._answer(request_id, method, answer))

    async def _answer(self, request_id: object, method: str, answer: Answer) -> None:
        message: Message = {"jsonrpc": "2.0", "id": request_id}
        try:
            message["result"] = await answer()
        except RequestError as error:
            message["error"] = error.error
        except Exception:  # noqa: BLE001 - the agent waits for an answer
            _log.exception("a request of the agent could not be served", method=method)
            message["error"] = {"code": INTERNAL_ERROR, "message": "internal error"}
        try:
            await self._transport.send(message)
        except AgentError as error:
            _log.warning("a request of the agent could not be answered", method=method, error=str(error))


def refusal(method: str, error: object) -> AgentRefused:
    """The error of an answer, however badly it is formed."""
    fields = error if isinstance(error, dict) else {"message": str(error)}
    code = fields.get("code")
    code = code if isinstance(code, int) else INTERNAL_ERROR
    return AgentRefused(method, code, str(fields.get("message", "no message")), fields.get("data"))


async def _refuse(error: RequestError) -> Message:
    raise error


def _set(future: asyncio.Future[_T], result: _T) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


def mark_retrieved(future: asyncio.Future[Any]) -> None:
    """Nobody has to await it: asyncio would complain of an error that was never looked at."""
    if not future.cancelled():
        future.exception()
