"""The dispatch outbox's rules (T3): which runner an admitted turn is offered to, and when again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from services.session.journal.rules import SessionKey
from services.session.runners import Runner


@dataclass(frozen=True, slots=True)
class Claim:
    """An admitted turn that this replica alone offers to runners, for a short time.

    `endpoint` is the runner that it was offered to last, `attempts` counts its claims,
    `overdue` says that no runner began it in time. `kept_by` is the holder that kept the session's
    agent, when the turn was admitted this very moment.
    """

    key: SessionKey
    turn_id: str
    profile: str
    traceparent: str
    endpoint: str
    attempts: int
    overdue: bool
    kept_by: str = ""


@dataclass(frozen=True, slots=True)
class Loads:
    """Turns in progress: those begun by their runner's holder name, those offered by its endpoint."""

    begun: Mapping[str, int] = field(default_factory=dict)
    offered: Mapping[str, int] = field(default_factory=dict)

    def of(self, runner: Runner) -> int:
        """How many turns a runner has."""
        return self.begun.get(runner.holder, 0) + self.offered.get(runner.endpoint, 0)


@dataclass(frozen=True, slots=True)
class Candidates:
    """The live runners that could take a turn."""

    pool: str
    profile: str
    serving: tuple[Runner, ...]

    @property
    def offering(self) -> tuple[Runner, ...]:
        """Those that offer the profile."""
        return tuple(runner for runner in self.serving if self.profile in runner.profiles)

    def pick(self, loads: Loads, preferred: str, refused: Collection[str]) -> Runner | None:
        """The runner at the preferred endpoint, else the least loaded one with room; none that refused."""
        open_ones = [runner for runner in self.offering if runner.endpoint not in refused]
        for runner in open_ones:
            if runner.endpoint == preferred:
                return runner
        with_room = [runner for runner in open_ones if loads.of(runner) < runner.capacity]
        return min(
            with_room, key=lambda runner: (loads.of(runner), -runner.capacity, runner.holder), default=None
        )

    def why_none(self, refused: Mapping[str, str]) -> str:
        """In words why none is left; `refused` has a reason by endpoint."""
        if not self.serving:
            return f"no live runner serves the pool {self.pool}"
        if not self.offering:
            return f"no live runner offers the profile {self.profile} in the pool {self.pool}"
        full = f"every runner of the pool {self.pool} that offers the profile {self.profile} is full"
        return "; ".join(refused.values()) or full


def candidates(pool: str, profile: str, runners: Iterable[Runner]) -> Candidates:
    """The runners of a pool that can be reached."""
    serving = (runner for runner in runners if runner.pool == pool and runner.endpoint)
    return Candidates(pool, profile, tuple(serving))
