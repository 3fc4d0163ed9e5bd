"""The execs of this instance, and the fence in its memory (F6).

Everything here happens between two suspensions of the event loop, so that no exec slips through:
it is registered before its token is judged in the database, and whoever raises the token there
raises it here right after the commit. The row is the durable copy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final, NamedTuple

from services.common.errors import Cancelled, MoorageError
from services.common.logs import get_logger
from services.common.validation import mint_id
from services.fencing.errors import StaleOwner
from services.workspace.exec.process import Outcome, PlaceLost, PlaceStopped, Process
from services.workspace.workspaces import (
    WorkspaceNotReady,
    WorkspaceState,
    WorkspaceStopped,
    resource_of,
)

_log: Final = get_logger(__name__)


def stale(session: SessionKey, token: int, highest: int) -> StaleOwner:
    """Why a token of the session is not good any more."""
    return StaleOwner(resource=resource_of(*session), token=token, highest=highest)


class SessionKey(NamedTuple):
    """A session, as execs are fenced."""

    project: str
    session_id: str


class Exec:
    """One command from the request to the death of all its processes.

    `gone` is done when they are dead, with how the command ended, or None when nobody knows.
    `refused` is done when it has to end before its time, with the error for its caller.
    """

    def __init__(self, session: SessionKey, workspace_id: str, token: int) -> None:
        """Not started yet."""
        loop = asyncio.get_running_loop()
        self.exec_id: Final = mint_id("exec")
        self.session: Final = session
        self.workspace_id: Final = workspace_id
        self.token: Final = token
        self.process: Process | None = None
        self.gone: Final[asyncio.Future[Outcome | None]] = loop.create_future()
        self.refused: Final[asyncio.Future[MoorageError]] = loop.create_future()

    @property
    def may_live(self) -> bool:
        """Whether its caller may still do something with it."""
        return not self.refused.done()

    def check(self) -> None:
        """Raise the error with which it has to end, if it has."""
        if self.refused.done():
            raise self.refused.result()

    def end(self, error: MoorageError) -> bool:
        """Have all its processes killed; the first error is the one told. False when it is over already."""
        if self.gone.done():
            return False
        if not self.refused.done():
            self.refused.set_result(error)
        if self.process is not None:
            self.process.kill()
        return True


class Execs:
    """All of them. `run` must run: it deals with what lost processes have left."""

    def __init__(self) -> None:
        """Without any."""
        self._execs: dict[str, Exec] = {}
        self._tokens: dict[SessionKey, int] = {}
        self._orphaned: asyncio.Queue[tuple[Exec, Process]] = asyncio.Queue()

    def register(self, session: SessionKey, workspace_id: str, token: int) -> Exec:
        """A new exec, not started yet. `attach` or `discard` it."""
        made = Exec(session, workspace_id, token)
        self._execs[made.exec_id] = made
        return made

    def attach(self, which: Exec, process: Process) -> None:
        """What it will run as, before it is started; killed at once if it may not live any more."""
        which.process = process
        process.ended.add_done_callback(lambda ended: self._on_ended(which, process, ended))
        if not which.may_live:
            process.kill()

    def discard(self, which: Exec) -> None:
        """It was never attached to a process, and will not be."""
        if which.process is None:
            self._bury(which, None)

    def raise_token(self, session: SessionKey, token: int) -> int:
        """End what has a lower token than the highest one seen, which is returned."""
        execs = self._of(session)
        highest = max(token, self._tokens.get(session, 0))
        if execs:
            self._tokens[session] = highest
        for each in execs:
            if each.token < highest:
                each.end(stale(each.session, each.token, highest))
        return highest

    def supersede(self, which: Exec) -> list[Exec]:
        """Raise the token to that of an exec that starts; gives what has to be dead before.

        The exec itself is ended when its token is not the highest.
        """
        self.raise_token(which.session, which.token)
        return [each for each in self._of(which.session) if each.token < which.token]

    def claim(self, session: SessionKey, token: int, keep_exec_id: str) -> list[Exec]:
        """Raise the token; end and give all execs of the session but the one that may live on.

        That one must be of this very token. StaleOwner when a higher token is known.
        """
        highest = self.raise_token(session, token)
        if highest > token:
            raise stale(session, token, highest)
        others = [each for each in self._of(session) if (each.exec_id, each.token) != (keep_exec_id, token)]
        for each in others:
            each.end(Cancelled())
        return others

    def of_workspace(self, project: str, workspace_id: str) -> list[Exec]:
        """Those in a workspace."""
        return [
            each
            for each in self._execs.values()
            if (each.session.project, each.workspace_id) == (project, workspace_id)
        ]

    def all(self) -> list[Exec]:
        """Those of the instance."""
        return list(self._execs.values())

    async def until_gone(self, execs: Iterable[Exec]) -> None:
        """Return when every process of these is dead."""
        if waiting := [each.gone for each in execs]:
            await asyncio.wait(waiting)

    async def run(self) -> None:
        """Kill what is left of execs whose processes were lost, until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                which, process = await self._orphaned.get()
                _log.warning("what watched over an exec died", exec_id=which.exec_id)
                group.create_task(self._kill_left(which, process))

    async def _kill_left(self, which: Exec, process: Process) -> None:
        outcome = None
        try:
            outcome = await process.kill_left(which.exec_id)
        except PlaceLost as error:
            which.end(_place_lost(which, error))
        except Exception as error:  # noqa: BLE001 (the others' processes are looked after all the same)
            _log.exception(
                "what is left of an exec cannot be killed", exec_id=which.exec_id, error=str(error)
            )
            await asyncio.Event().wait()
        self._bury(which, outcome)

    def _of(self, session: SessionKey) -> list[Exec]:
        return [each for each in self._execs.values() if each.session == session]

    def _on_ended(self, which: Exec, process: Process, ended: asyncio.Future[Outcome]) -> None:
        if ended.exception() is None:
            self._bury(which, ended.result())
        else:
            self._orphaned.put_nowait((which, process))

    def _bury(self, which: Exec, outcome: Outcome | None) -> None:
        if not which.gone.done():
            which.gone.set_result(outcome)
        self._execs.pop(which.exec_id, None)
        if not self._of(which.session):
            self._tokens.pop(which.session, None)


def _place_lost(which: Exec, error: PlaceLost) -> WorkspaceNotReady:
    name, cause = which.workspace_id, str(error)
    if isinstance(error, PlaceStopped):
        # The workspace goes on.
        return WorkspaceStopped(workspace_id=name, state=WorkspaceState.READY, state_reason=cause)
    return WorkspaceNotReady(workspace_id=name, state=WorkspaceState.LOST, state_reason=cause)
