"""Provider `docker`: a container for each workspace, around a directory of this machine (W5).

The directory is mounted at its own path, so that what is said of it is the same inside and
outside; files are read and written from outside, never through the engine.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from docker.errors import APIError

from services.common.errors import InvalidArgument
from services.common.failpoints import failpoint
from services.common.logs import get_logger
from services.common.loops import forever
from services.workspace.docker import containers
from services.workspace.docker.containers import Container
from services.workspace.docker.engine import Engine
from services.workspace.docker.exec.helpers import Helpers
from services.workspace.docker.ground import Ground, Root
from services.workspace.docker.labels import Labels, selecting
from services.workspace.docker.making import NAME, Maker
from services.workspace.docker.readiness import Readiness
from services.workspace.docker.stock import Stock
from services.workspace.exec.environment import heritable
from services.workspace.exec.marker import Marker
from services.workspace.exec.process import Process
from services.workspace.providers import directories, roots
from services.workspace.providers.files import Tree
from services.workspace.providers.found import Found
from services.workspace.providers.registry import EngineState, Refused, Unasked, Unusable, Vanished
from services.workspace.sources.wanted import Directory, Source
from services.workspace.specs import Limits, Network, Spec
from services.workspace.workspaces import Workspace

# Nothing is served meanwhile.
_LONGEST_LOOK: Final = 5.0
_LOOK_FOR_USE: Final = 10.0

_log: Final = get_logger(__name__)

_LEAST: Final = Limits(cpus=0.01, memory_bytes=16 * 1024 * 1024, pids=8)


@dataclass(frozen=True, slots=True)
class Offer:
    """What can be asked for."""

    enabled: bool
    images: tuple[str, ...]
    limits: Limits
    network: Network


class DockerProvider:
    """See the module. It removes what was made also when it makes nothing any more (W4)."""

    name: Final = NAME
    root: Final = ""
    default_directory: Final = ""

    def __init__(
        self,
        engine: Engine,
        helpers: Helpers,
        ground: Ground,
        offer: Offer,
        has_any: Callable[[], Awaitable[bool]],
    ) -> None:
        """`prepare` comes before it is used. `has_any`: whether there are workspaces of it."""
        self.engine = engine
        self._helpers = helpers
        self._ground = ground
        self._offer = offer
        self._has_any = has_any
        self._maker = Maker(engine, helpers, ground)
        self._readiness = Readiness(ground, self._maker.starter.renew)
        self._stock = Stock(engine, offer.images)
        self._deployment = ""
        self._changes: dict[str, Future[None]] = {}

    async def prepare(self, marker: Marker) -> None:
        """Whose containers are its own, and what its processes carry."""
        self._deployment = marker.deployment
        self._helpers.prepare(marker)
        if await self._is_used():
            # What containers have may be an older helper, or none: it would end nothing.
            await self._readiness.look()
            await self._clear(marker)

    async def _clear(self, marker: Marker) -> None:
        """See that nothing of earlier starts runs. With an engine that is away it has ended by itself."""
        wanted = partial(containers.select, selecting(marker.deployment, marker.instance))
        try:
            async with asyncio.timeout(_LONGEST_LOOK):
                listed = await self.engine.call(wanted)
                if running := [each["Id"] for each in listed if each["State"] == "running"]:
                    await self._helpers.clear(running)
        except (TimeoutError, Unusable, APIError) as error:
            _log.warning("what an earlier start left was not looked for", error=str(error))

    async def run(self) -> None:
        """Keep looking for the engine, while it is used, and for what containers need; until cancelled."""
        try:
            async with asyncio.TaskGroup() as loops:
                loops.create_task(forever("asking the engine whether it is there", self._look))
                loops.create_task(forever("putting the helper in its place", self._readiness.keep))
        finally:
            self.engine.close()

    async def _look(self) -> float | None:
        if not await self._is_used():
            return _LOOK_FOR_USE
        await self._stock.look()
        await self.engine.rest()
        return None

    async def _is_used(self) -> bool:
        """What was made goes on being used where nothing is made any more."""
        return not self.withheld or await self._has_any()

    async def engine_state(self) -> EngineState | None:
        """See Provider."""
        return None if self.withheld else await self._stock.state()

    @property
    def images(self) -> Sequence[str]:
        """See Provider."""
        return self._offer.images

    @property
    def limits(self) -> Limits:
        """See Provider."""
        return self._offer.limits

    @property
    def enabled(self) -> bool:
        """See Provider."""
        return not self._barred

    @property
    def unavailable_cause(self) -> str:
        """See Provider."""
        return self._barred or self.engine.cause

    @property
    def _barred(self) -> str:
        return self.withheld or self._readiness.cause

    @property
    def withheld(self) -> str:
        """See Provider."""
        if not self._offer.enabled:
            return "provisioning is disabled"
        if not self._offer.images:
            return "the instance allows no image"
        return ""

    def complete(self, spec: Spec) -> Spec:
        """See Provider."""
        if spec.image and spec.image not in self._offer.images:
            allowed = ", ".join(self._offer.images)
            raise InvalidArgument.of(
                "provision.image", f"{spec.image[:80]!r} is none of those allowed: {allowed}"
            )
        network = self._network("provision.network", spec.network)
        if spec.setup is not None and spec.setup.network:
            self._network("provision.setup.network", Network(spec.setup.network))
        return replace(
            spec,
            image=spec.image or self._offer.images[0],
            network=network,
            limits=spec.limits.within(self._offer.limits, _LEAST),
            source=self._source(spec.source),
        )

    def root_of(self, project: str, workspace_id: str) -> str:
        """See Provider."""
        return self._ground.place(project, workspace_id)

    def accept(self, field: str, directory: str) -> str:
        """See Provider."""
        raise InvalidArgument.of(field, "provider docker adopts no directory; it can be a source")

    async def provision(self, workspace: Workspace, deployment: str) -> None:
        """See Provider."""
        await self._maker.make(workspace, deployment)

    async def remove(self, workspace: Workspace, deployment: str, give_up: Callable[[], bool]) -> None:
        """See Provider."""
        await self._maker.remove(workspace, deployment, give_up)

    async def survey(self, deployment: str, instance_id: str) -> Sequence[Found]:
        """See Provider."""
        return await self._maker.survey(deployment, instance_id)

    async def discard(self, found: Found, deployment: str, instance_id: str) -> bool:
        """See Provider."""
        return await self._maker.discard(found, deployment, instance_id)

    async def check(self, workspace: Workspace) -> None:
        """See Provider."""
        await self._running(workspace)

    async def environment(self, workspace: Workspace) -> Mapping[str, str]:
        """See Provider: what the image gives, and where programs and the home directory are."""
        variables = dict(each.partition("=")[::2] for each in (await self._running(workspace)).environment)
        return heritable({"PATH": containers.PATH, "HOME": containers.HOME, **variables})

    async def spawn(self, workspace: Workspace, directory: str, terminal: tuple[int, int] | None) -> Process:
        """See Provider."""
        with self._ground.found(workspace) as root:
            container = await self._running_with(workspace, root)
            # Looked at once more inside, where a link that is swapped in leads nowhere else than inside.
            with roots.start_directory(workspace, directory) as descriptor:
                path = directories.where(descriptor)
            await failpoint("workspace.docker.before_exec")
            try:
                with _asked_again():
                    return await self._maker.starter.spawn(container.id, root, path, terminal)
            except Refused as error:
                raise Unusable(str(error)) from error

    async def reach(self, workspace: Workspace, network: Network) -> None:
        """See Provider."""
        container = await self._running(workspace)
        # What is asked for goes on when nobody waits for it, and would come after what is asked for now.
        self._changes = {which: call for which, call in self._changes.items() if not call.done()}
        if container.id in self._changes:
            raise Unasked("the engine has not yet said what became of an earlier change of its network")
        with _asked_again():
            change = self.engine.begin(
                partial(containers.connect, container.id, self._ground.network(network))
            )
            self._changes[container.id] = change
            await self.engine.answer(change)

    @contextlib.contextmanager
    def files(self, workspace: Workspace) -> Iterator[Tree]:
        """See Provider. What is made belongs to who works there, if it is ours to give."""
        with contextlib.ExitStack() as held:
            descriptor = self._ground.pin(workspace, held)
            yield Tree(descriptor, workspace.root, self._ground.owner(self._ground.user_of(descriptor)))

    async def _running(self, workspace: Workspace) -> Container:
        """Its container; started again when the engine or the machine was. Vanished, Unusable, Unasked."""
        with self._ground.found(workspace) as root:
            return await self._running_with(workspace, root)

    async def _running_with(self, workspace: Workspace, root: Root) -> Container:
        if not self._deployment:
            raise Unasked("this instance does not serve yet")
        labels = Labels.of(workspace, self._deployment)
        with _asked_again():
            found = await self.engine.call(partial(containers.inspect, labels.name))
        if found is None or found.is_leaving or not labels.are(found.labels):
            raise Vanished("its container is gone")
        if not found.running:
            await self._revive(found, root)
        return found

    async def _revive(self, found: Container, root: Root) -> None:
        await failpoint("workspace.docker.before_revive")
        try:
            await self._maker.starter.start(found.id)
            await self._maker.starter.look(found.id, root)
        except Refused as error:
            raise Unusable(str(error)) from error
        except APIError as error:
            raise Unusable(f"its container does not start: {error.explanation}") from error
        except OSError as error:
            raise Unasked(str(error)) from error

    def _network(self, field: str, network: Network) -> Network:
        if network is Network.UNSPECIFIED:
            return self._offer.network
        if network is Network.HOST:
            raise InvalidArgument.of(field, "provider docker gives nobody the network of its machine")
        if network is Network.BRIDGE and not self._ground.bridge:
            raise InvalidArgument.of(field, "this instance has no network for workspaces")
        return network

    def _source(self, asked: Source | None) -> Source | None:
        if not isinstance(asked, Directory):
            return asked
        return Directory(self._ground.accept("provision.source.path.directory", asked.path))


@contextlib.contextmanager
def _asked_again() -> Iterator[None]:
    """That the engine knows no such thing, or that it is in another state now, is no end by itself.

    It may have been restarted in between; whoever asks again finds out what there is (W3).
    """
    try:
        yield
    except APIError as error:
        raise Unasked(f"the engine: {error.explanation}") from error
    except OSError as error:
        raise Unasked(str(error)) from error
