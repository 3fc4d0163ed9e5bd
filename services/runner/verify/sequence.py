"""The checks in the order in which an agent meets clients, several starts of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from services.runner.verify import checks
from services.runner.verify.agent import Wanted, started
from services.runner.verify.findings import FAULTS, Findings, NotTried, Verdict
from services.runner.verify.visits import Visit, Words

Check = Callable[[Visit], Awaitable[str]]
Group = tuple[tuple[str, Check], ...]

STARTS: Final = "starts"
OPENING: Final[Group] = (("introduces itself", Visit.introduced), ("opens a session", Visit.opened))
# Each in a process of its own that has opened a session: a name, and what to do.
FIRST: Final[Group] = (
    ("answers a prompt", checks.answers_a_prompt),
    ("is silent afterwards", checks.is_silent_afterwards),
    ("answers a second prompt", checks.answers_a_second_prompt),
    ("keeps its output clean", checks.keeps_its_output_clean),
    ("ends with its input", checks.ends_with_its_input),
    ("leaves nothing behind", checks.leaves_nothing_behind),
)
CANCELS: Final[Group] = (
    ("honours a cancel", checks.honours_a_cancel),
    ("goes on after a cancel", checks.goes_on_after_a_cancel),
)
EARLY: Final[Group] = (("honours a cancel at once", checks.honours_a_cancel_at_once),)
UNKNOWN: Final[Group] = (
    ("refuses unknown requests", checks.refuses_unknown_methods),
    ("refuses unknown sessions", checks.refuses_unknown_sessions),
)
LOADED: Final = "loads its session"
CANCEL_LOADED: Final[Group] = (("honours a cancel after a load", checks.honours_a_cancel),)


async def run(wanted: Wanted, words: Words, findings: Findings) -> None:
    """All checks."""
    session_id = await _first(wanted, words, findings)
    for group in (CANCELS, EARLY, UNKNOWN):
        await _anew(wanted, words, findings, group)
    await _loaded(wanted, words, findings, session_id)


async def _first(wanted: Wanted, words: Words, findings: Findings) -> str:
    """The id of the session that was opened; empty without one."""
    try:
        async with started(wanted) as agent:
            findings.add(STARTS, Verdict.RIGHT, wanted.command[0])
            visit = Visit(agent, wanted, words)
            for done, (name, check) in enumerate(OPENING, start=1):
                if not await _try(name, partial(check, visit), findings):
                    _skip((*OPENING[done:], *FIRST), findings, "no session was opened")
                    return ""
            await _all(FIRST, visit, findings)
            return visit.session_id
    except OSError as error:
        findings.fault(STARTS, error)
        _skip((*OPENING, *FIRST), findings, "it does not start")
        return ""


async def _anew(wanted: Wanted, words: Words, findings: Findings, group: Group) -> None:
    """In a fresh process."""
    try:
        async with started(wanted) as agent:
            visit = Visit(agent, wanted, words)
            await visit.introduced()
            await visit.opened()
            await _all(group, visit, findings)
    except FAULTS as error:
        _skip(group, findings, str(error))


async def _loaded(wanted: Wanted, words: Words, findings: Findings, session_id: str) -> None:
    try:
        async with started(wanted) as agent:
            visit = Visit(agent, wanted, words)
            await visit.introduced()
            if await _try(LOADED, lambda: checks.loads_its_session(visit, session_id), findings):
                await _all(CANCEL_LOADED, visit, findings)
            else:
                _skip(CANCEL_LOADED, findings, "no session was loaded")
    except FAULTS as error:
        findings.fault(LOADED, NotTried(str(error)))
        _skip(CANCEL_LOADED, findings, str(error))


async def _all(group: Group, visit: Visit, findings: Findings) -> None:
    for name, check in group:
        await _try(name, partial(check, visit), findings)


async def _try(name: str, check: Callable[[], Awaitable[str]], findings: Findings) -> bool:
    try:
        words = await check()
    except FAULTS as error:
        findings.fault(name, error)
        return False
    findings.add(name, Verdict.RIGHT, words)
    return True


def _skip(group: Group, findings: Findings, why: str) -> None:
    for name, _ in group:
        findings.add(name, Verdict.NOT_TRIED, why)
