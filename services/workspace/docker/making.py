"""Makes and removes what workspaces stand for: a container, and a directory of ours around which it is (W1 to W4)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final

from services.common.failpoints import failpoint
from services.common.logs import get_logger
from services.workspace.docker import containers, labels
from services.workspace.docker.containers import LEAVING, Made, Places, User, Wanted
from services.workspace.docker.engine import Engine
from services.workspace.docker.equipment import Equipment
from services.workspace.docker.exec.helpers import Helpers
from services.workspace.docker.ground import Ground, Root, spec_of
from services.workspace.docker.labels import Labels, selecting
from services.workspace.docker.starting import Starter
from services.workspace.providers import provisioned
from services.workspace.providers.found import Found, Thing
from services.workspace.providers.labels import Label
from services.workspace.providers.registry import Refused, Unasked, Vanished
from services.workspace.sources.wanted import Directory
from services.workspace.specs import Spec
from services.workspace.workspaces import Workspace

NAME: Final = "docker"

_PAUSE: Final = 0.1
# The worker tries again, and says meanwhile what it waits for.
_CONFIRMED_WITHIN: Final = 20.0

_log: Final = get_logger(__name__)


class Maker:
    """Of one instance. Whatever is cancelled or fails is found by its labels, and by its name (W2)."""

    def __init__(self, engine: Engine, helpers: Helpers, ground: Ground) -> None:
        """Nothing is asked of the engine yet."""
        self._engine = engine
        self._ground = ground
        self._equipment = Equipment(ground.helper_directory)
        self.starter: Final = Starter(engine, helpers, self._equipment)
        self._creations: dict[tuple[str, str], list[Future[Made]]] = {}

    async def make(self, workspace: Workspace, deployment: str) -> None:
        """The directory, then the container, then its start. Refused, PassedBy, Unusable, errors of the library."""
        spec = spec_of(workspace)
        await failpoint("workspace.docker.before_directory")
        if not isinstance(spec.source, Directory):
            await asyncio.to_thread(provisioned.make, workspace, deployment)
        with self._prepared(workspace, spec) as root:
            wanted = Wanted(
                Labels.of(workspace, deployment),
                spec,
                self._ground.network(spec.network),
                Places(
                    root.path, await self._home(workspace, deployment, root.user), self._equipment.directory
                ),
                root.user,
            )
            await self._equipment.ready()
            await failpoint("workspace.docker.before_create")
            made = await self._create(wanted)
            try:
                await failpoint("workspace.docker.after_create")
                await self.starter.start(made.id)
                await self._check(workspace, made, root)
            except Exception as error:
                await self._roll_back(made.id, error)
                raise

    async def remove(self, workspace: Workspace, deployment: str, give_up: Callable[[], bool]) -> None:
        """First the container, of every generation; the directory when that is confirmed (W3)."""
        await failpoint("workspace.docker.before_remove")
        self._until_answered(workspace.project, workspace.workspace_id)
        await self._remove_containers(self._selecting(workspace, deployment))
        await failpoint("workspace.docker.after_remove")
        await failpoint("workspace.docker.before_directory_remove")
        label = Label.of(workspace, deployment)
        await asyncio.to_thread(provisioned.remove, self._made(workspace), label, give_up)

    async def survey(self, deployment: str, instance_id: str) -> Sequence[Found]:
        """Containers and directories. Unasked."""
        listed = await self._engine.call(partial(containers.select, selecting(deployment, instance_id)))
        owner = provisioned.Owner(deployment, instance_id, NAME)
        state = self._ground.state_directory
        try:
            found = await asyncio.to_thread(provisioned.survey, state, owner, usable=False)
        except OSError as error:
            raise Unasked(f"{state}: {error.strerror}") from error
        return [*map(_found, listed), *found]

    async def discard(self, found: Found, deployment: str, instance_id: str) -> bool:
        """See Provider."""
        if found.thing is Thing.CONTAINER:
            return await self._discard_container(found.resource)
        project, workspace_id = found.key
        self._until_answered(project, workspace_id)
        filters = selecting(deployment, instance_id, project=project, workspace=workspace_id)
        if await self._engine.call(partial(containers.select, filters)):
            raise Unasked(f"a container may use {found.resource}")
        label = provisioned.Owner(deployment, instance_id, NAME).label(project, workspace_id)
        given_up = threading.Event()
        try:
            return await asyncio.to_thread(provisioned.remove, found.resource, label, given_up.is_set)
        finally:
            # The thread of a call that was cancelled would go on.
            given_up.set()

    async def _check(self, workspace: Workspace, made: Made, root: Root) -> None:
        """Return when what it has mounted is its directory. Refused, Vanished, Unasked."""
        if made.ran or isinstance(spec_of(workspace).source, Directory):
            # What was started before this look may have been given another one.
            await self.starter.look(made.id, root)
        else:
            # Nobody but the instance writes above one of our own, so what is there is what was mounted.
            with self._ground.found(workspace) as found:
                if found != root:
                    raise Vanished(f"{root.path} is another directory than the one that was mounted")

    def _made(self, workspace: Workspace) -> str:
        """Where what was made for it lies, never a directory that is the source."""
        if isinstance(spec_of(workspace).source, Directory):
            return self._ground.place(workspace.project, workspace.workspace_id)
        return workspace.root

    async def _home(self, workspace: Workspace, deployment: str, user: User) -> str:
        label, owner = Label.of(workspace, deployment), self._ground.owner(user)
        return await asyncio.to_thread(provisioned.make_home, self._made(workspace), label, owner)

    @contextlib.contextmanager
    def _prepared(self, workspace: Workspace, spec: Spec) -> Iterator[Root]:
        """Its directory, and who is to work there; held open within the block."""
        with contextlib.ExitStack() as held:
            if isinstance(spec.source, Directory):
                descriptor = self._pin_source(workspace, held)
            else:
                descriptor = self._ground.pin(workspace, held)
                _give(descriptor, self._ground.owner(self._ground.user))
            yield self._ground.root_of(workspace, descriptor)

    def _pin_source(self, workspace: Workspace, held: contextlib.ExitStack) -> int:
        try:
            return self._ground.pin(workspace, held)
        except Vanished as error:
            raise Refused(str(error)) from error

    async def _create(self, wanted: Wanted) -> Made:
        """What is asked for goes on when nobody waits for it, so it is remembered until it is answered."""
        creation = self._engine.begin(partial(containers.create, wanted))
        key = wanted.labels.project, wanted.labels.workspace
        self._creations[key] = [*self._unanswered(*key), creation]
        try:
            return await self._engine.answer(creation)
        finally:
            self._unanswered(*key)

    def _until_answered(self, project: str, workspace_id: str) -> None:
        if self._unanswered(project, workspace_id):
            raise Unasked("the engine has not yet said what became of its creation")

    def _unanswered(self, project: str, workspace_id: str) -> list[Future[Made]]:
        """The creations of a workspace of which it is not known yet; the others are forgotten."""
        left = [each for each in self._creations.pop((project, workspace_id), ()) if not each.done()]
        if left:
            self._creations[project, workspace_id] = left
        return left

    async def _roll_back(self, container_id: str, first: Exception) -> None:
        """The first error is what is told, whatever becomes of this; the next try adopts what is left."""
        try:
            await failpoint("workspace.docker.before_roll_back")
            await self._engine.call(partial(containers.remove, [container_id]))
        except Exception as error:  # noqa: BLE001 (see above)
            _log.warning("a container that failed is still there", first=str(first), error=str(error))

    async def _remove_containers(self, filters: dict[str, list[str]]) -> None:
        """Return when the engine lists none any more."""
        deadline = time.monotonic() + _CONFIRMED_WITHIN
        while listed := await self._engine.call(partial(containers.select, filters)):
            if time.monotonic() > deadline:
                raise Unasked(f"the engine still has {', '.join(each['Id'][:12] for each in listed)}")
            await self._engine.call(partial(containers.remove, [each["Id"] for each in listed]))
            await asyncio.sleep(_PAUSE)

    async def _discard_container(self, container_id: str) -> bool:
        was_there = await self._engine.call(partial(containers.inspect, container_id)) is not None
        if was_there:
            await self._remove_containers({"id": [container_id]})
        return was_there

    def _selecting(self, workspace: Workspace, deployment: str) -> dict[str, list[str]]:
        return selecting(
            deployment, workspace.instance_id, project=workspace.project, workspace=workspace.workspace_id
        )


def _give(descriptor: int, owner: tuple[int, int] | None) -> None:
    if owner is not None:
        os.chown(f"/proc/self/fd/{descriptor}", *owner)


def _found(listed: dict[str, Any]) -> Found:
    said = listed["Labels"]
    return Found(
        project=labels.named(said, "project"),
        workspace_id=labels.named(said, "workspace"),
        generation=labels.generation_of(said),
        thing=Thing.CONTAINER,
        resource=listed["Id"],
        usable=listed["State"] not in LEAVING,
    )
