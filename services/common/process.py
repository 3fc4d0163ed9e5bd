"""What a service's `__main__` does around its server: logs, telemetry, exit codes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final, NoReturn

from services.common.errors import StartupRefused
from services.common.logs import configure_logging, get_logger
from services.common.settings import CommonSettings
from services.common.telemetry import configure_telemetry, shutdown_telemetry

_log: Final = get_logger(__name__)
_REFUSED: Final = 1
_CRASHED: Final = 70


def run_service(
    name: str, settings: CommonSettings, main: Callable[[], Coroutine[Any, Any, None]]
) -> NoReturn:
    """Run `main` to its end and exit: 0 after an orderly stop, 1 with one line when it must not run."""
    configure_logging(settings, name)
    code = 0
    try:
        configure_telemetry(name)
        asyncio.run(_in_loop(main))
    except Exception as error:  # noqa: BLE001 (the last one that can report it)
        code = _report(error)
    finally:
        shutdown_telemetry()
    sys.exit(code)


async def _in_loop(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    # Channels belong to the loop they are made in, so what makes them is called in it too.
    await main()


def _report(error: Exception) -> int:
    if refusal := _refusal(error):
        _log.critical(f"refused to start: {refusal}")
        return _REFUSED
    _log.critical("ended by an unexpected error", exc_info=error)
    return _CRASHED


def _refusal(error: BaseException) -> StartupRefused | None:
    """The refusal in an error of a task group; it outweighs what it made others do."""
    if isinstance(error, StartupRefused):
        return error
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(_refusal, error.exceptions)), None)
    return None
