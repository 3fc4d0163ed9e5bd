"""Sets a native session as its session wants it: model, mode, options, of those that the agent offers (T6)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from moorage.common.v1.record_pb2 import AgentMode, AgentOptions, RecordBody
from moorage.common.v1.turn_pb2 import EndReason
from moorage.session.v1.session_pb2 import AgentSpec

from services.runner.acp.connection import AgentConnection
from services.runner.acp.messages import NativeSession
from services.runner.acp.offers import Offers, Option, Selector
from services.runner.acp.records import agent_choices, agent_options
from services.runner.endings import TurnFailed

_MODE: Final = "mode"
_MODEL: Final = "model"


class Setup:
    """One for a native session that was just opened; what is as wanted already is not set again."""

    def __init__(self, connection: AgentConnection, native: NativeSession, timeout: float) -> None:
        """`timeout` bounds each request, in seconds."""
        self._connection = connection
        self._native = native
        self._timeout = timeout
        self._offers = native.offers

    async def run(self, agent: AgentSpec) -> NativeSession:
        """The session, set; TurnFailed where the agent does not offer what is wanted. Raises AgentError."""
        # What can be chosen else may depend on the model.
        if agent.model:
            await self._set_model(agent.model)
        if agent.mode:
            await self._set_mode(agent.mode)
        for option_id in sorted(agent.options):
            await self._set(self._option(option_id), agent.options[option_id])
        return replace(self._native, offers=self._offers)

    async def _set_mode(self, mode: str) -> None:
        if self._is_to_set(self._offers.modes, _MODE, mode):
            await self._connection.set_mode(self._native.id, mode, timeout=self._timeout)
            self._offers = self._offers.with_mode(mode)
        elif not self._offers.modes.choices:
            await self._set(self._in_category(_MODE), mode)

    async def _set_model(self, model: str) -> None:
        if self._is_to_set(self._offers.models, _MODEL, model):
            await self._connection.set_model(self._native.id, model, timeout=self._timeout)
            self._offers = self._offers.with_model(model)
        elif not self._offers.models.choices:
            await self._set(self._in_category(_MODEL), model)

    def _is_to_set(self, selector: Selector, name: str, wanted: str) -> bool:
        """Whether it is offered in this form, and not as wanted yet."""
        offered = [choice.id for choice in selector.choices]
        if offered and wanted not in offered:
            raise _not_offered(name, wanted, offered)
        return bool(offered) and selector.value != wanted

    async def _set(self, option: Option, value: str) -> None:
        if value not in option.values:
            raise _not_offered(option.id, value, option.values)
        if option.value != value:
            changed = await self._connection.set_option(self._native.id, option, value, timeout=self._timeout)
            self._offers = self._offers.with_options(changed)

    def _option(self, option_id: str) -> Option:
        if option := self._offers.option(option_id):
            return option
        raise _not_offered("option", option_id, [option.id for option in self._offers.options])

    def _in_category(self, category: str) -> Option:
        if option := self._offers.in_category(category):
            return option
        raise TurnFailed(
            EndReason.END_REASON_AGENT_START_FAILED,
            f"the agent offers no choice of its {category}",
            code="NOT_OFFERED",
            setting=category,
        )


def told(offers: Offers) -> list[RecordBody]:
    """What the transcript says about a session's offers."""
    records = []
    if offers.modes.choices:
        modes = agent_choices(offers.modes.choices)
        records.append(RecordBody(agent_mode=AgentMode(mode_id=offers.modes.value, modes=modes)))
    if offers.options:
        records.append(RecordBody(agent_options=AgentOptions(options=agent_options(offers.options))))
    return records


def _not_offered(setting: str, wanted: str, offered: list[str] | tuple[str, ...]) -> TurnFailed:
    known = ", ".join(offered)
    return TurnFailed(
        EndReason.END_REASON_AGENT_START_FAILED,
        f"the agent does not offer {setting} {wanted!r}; it offers {known or 'none'}",
        code="NOT_OFFERED",
        setting=setting,
        wanted=wanted,
        offered=known,
    )
