"""The checks, each of one thing that an agent should do."""

from __future__ import annotations

import asyncio
from typing import Final

from services.runner.acp.errors import METHOD_NOT_FOUND, AgentRefused, AgentTimeout
from services.runner.acp.messages import Prompt
from services.runner.verify.agent import group_of
from services.runner.verify.findings import NotTried, Wrong
from services.runner.verify.visits import Visit

_KNOWN_REASONS: Final = frozenset(("end_turn", "max_tokens", "max_turn_requests", "refusal"))
_CANCELLED: Final = "cancelled"
# What comes within this time of an answer has come with it.
_AFTERWARDS: Final = 0.5
_NO_SUCH_METHOD: Final = "_moorage/no_such_method"


async def refuses_unknown_methods(visit: Visit) -> str:
    """An error, not silence."""
    try:
        await visit.agent.connection.request(_NO_SUCH_METHOD, {}, timeout=visit.wanted.timeout)
    except AgentRefused as refused:
        if refused.code != METHOD_NOT_FOUND:
            raise Wrong(f"refused with code {refused.code}, not {METHOD_NOT_FOUND}") from refused
        return "refused as unknown"
    except AgentTimeout as error:
        raise Wrong("an unknown request was not answered") from error
    raise Wrong("an unknown request was answered as if it were known")


async def refuses_unknown_sessions(visit: Visit) -> str:
    """An error, not silence."""
    params = {"sessionId": "no-such-session", "prompt": [{"type": "text", "text": visit.words.short}]}
    try:
        await visit.agent.connection.request("session/prompt", params, timeout=visit.wanted.timeout)
    except AgentRefused:
        return "refused"
    except AgentTimeout as error:
        raise Wrong("a prompt of an unknown session was not answered") from error
    raise Wrong("a prompt of an unknown session was answered")


async def answers_a_prompt(visit: Visit) -> str:
    """It says something and ends with a reason that is known."""
    reason = await visit.end_of(visit.prompt(visit.words.short), "the prompt")
    if reason not in _KNOWN_REASONS:
        raise Wrong(f"it ended with {reason!r}, which is no known reason")
    strange = {update.kind for update in visit.agent.watcher.updates if update.model is None}
    if strange:
        raise Wrong(f"updates that do not fit the schema: {', '.join(sorted(strange)) or 'without a kind'}")
    if not any(update.in_prompt for update in visit.agent.watcher.updates):
        raise Wrong(f"it ended with {reason} and had said nothing")
    return f"ended with {reason}"


async def is_silent_afterwards(visit: Visit) -> str:
    """What belongs to a prompt comes before its end."""
    await asyncio.sleep(_AFTERWARDS)
    late = [update for update in visit.agent.watcher.updates if not update.in_prompt and not update.replayed]
    pieces = [update for update in late if update.kind == "agent_message_chunk"]
    if pieces:
        raise Wrong(f"{len(pieces)} pieces of text came outside of a prompt")
    return "nothing was said outside of a prompt"


async def answers_a_second_prompt(visit: Visit) -> str:
    """In the same session."""
    return f"ended with {await visit.end_of(visit.prompt(visit.words.short), 'the second prompt')}"


async def keeps_its_output_clean(visit: Visit) -> str:
    """Stdout is for messages."""
    noise = visit.agent.connection.noise
    if noise.count:
        raise Wrong(f"{noise.count} lines on stdout are no messages, the last one: {noise.lines[-1][:60]!r}")
    return "only messages on stdout"


async def ends_with_its_input(visit: Visit) -> str:
    """Nobody has to kill it."""
    code = await visit.agent.exits(visit.wanted.timeout)
    if code is None:
        raise Wrong(f"it still runs {visit.wanted.timeout:g} s after the end of its input")
    return f"exit code {code}" if code >= 0 else f"signal {-code}"


async def leaves_nothing_behind(visit: Visit) -> str:
    """Of its process group."""
    if visit.agent.process.returncode is None:
        raise NotTried("it still runs")
    if left := group_of(visit.agent.process.pid):
        raise Wrong(f"{len(left)} of its processes live on")
    return "its process group is gone"


async def honours_a_cancel(visit: Visit) -> str:
    """In the middle of its answer."""
    prompt = visit.prompt(visit.words.long)
    try:
        async with asyncio.timeout(visit.wanted.timeout):
            await visit.agent.watcher.spoke.wait()
    except TimeoutError as error:
        raise NotTried("it did not begin to answer in time") from error
    return await _cancelled(visit, prompt)


async def honours_a_cancel_at_once(visit: Visit) -> str:
    """Right behind the prompt."""
    return await _cancelled(visit, visit.prompt(visit.words.long))


async def goes_on_after_a_cancel(visit: Visit) -> str:
    """The session is not lost."""
    reason = await visit.end_of(visit.prompt(visit.words.short), "the prompt after a cancelled one")
    if reason not in _KNOWN_REASONS:
        raise Wrong(f"the prompt after a cancelled one ended with {reason!r}")
    return f"ended with {reason}"


async def _cancelled(visit: Visit, prompt: Prompt) -> str:
    if not await visit.agent.connection.cancel(visit.session_id):
        raise NotTried("it had ended by itself before it could be cancelled")
    reason = await visit.end_of(prompt, "a cancelled prompt")
    if reason in _KNOWN_REASONS:
        raise NotTried(f"it ended by itself meanwhile, with {reason}")
    if reason != _CANCELLED:
        raise Wrong(f"a cancelled prompt ended with {reason!r}, not {_CANCELLED!r}")
    return f"ended with {reason}"


async def loads_its_session(visit: Visit, session_id: str) -> str:
    """Of another process, and tells what was said."""
    info = visit.info
    if not session_id or info is None or not info.capabilities.load_session:
        raise NotTried("it does not offer to load sessions" if session_id else "it has opened none")
    directory = str(visit.wanted.directory)
    await visit.agent.connection.load_session(session_id, directory, timeout=visit.wanted.start_timeout)
    visit.session_id = session_id
    told = [update for update in visit.agent.watcher.updates if update.replayed]
    if not told:
        raise Wrong("it loaded the session and told nothing of what was said")
    return f"told {len(told)} updates of before"
