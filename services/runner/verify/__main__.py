"""Entry point: findings on standard output, a JSON document a line; exit code 1 when something is wrong."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from services.runner.profiles import Profile, ProfileError, load_profiles, resolve_command
from services.runner.verify.agent import Wanted
from services.runner.verify.findings import Finding, Findings
from services.runner.verify.introduction import introduce
from services.runner.verify.sequence import run
from services.runner.verify.visits import Words

SHORT = "Reply with the single word: ready"
LONG = "Count from 1 to 1000, each number on a line of its own, without using any tool."


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code; 2 for what cannot be understood."""
    options = _parser().parse_args(arguments)
    try:
        profile = _profile(options.profile, options.profiles_directory) if options.profile else None
    except ProfileError as error:
        _print({"error": str(error)})
        return 2
    command = resolve_command(profile) if profile else options.command
    if not command:
        _print({"error": "name a profile, or a command behind --"})
        return 2
    directory = options.directory.resolve()
    wanted = Wanted(command, directory, _environment(profile), options.start_timeout, options.timeout)
    if options.introduce and profile:
        return asyncio.run(_introduce(wanted, profile))
    return asyncio.run(_verify(wanted, Words(options.prompt, options.long_prompt)))


async def _verify(wanted: Wanted, words: Words) -> int:
    findings = Findings(_tell)
    await run(wanted, words, findings)
    return 0 if findings.faultless else 1


async def _introduce(wanted: Wanted, profile: Profile) -> int:
    introduction = await introduce(wanted, profile)
    _print({"agent": profile.name, "ok": introduction.works, "text": introduction.words})
    return 0 if introduction.works else 1


def _profile(name: str, directory: Path | None) -> Profile:
    profiles = load_profiles(directory)
    if name not in profiles:
        raise ProfileError(Path(name), "", f"no such profile; known: {', '.join(sorted(profiles))}")
    return profiles[name]


def _environment(profile: Profile | None) -> Mapping[str, str]:
    """What the profile says it would have; without one, all that is here."""
    if profile is None:
        return os.environ
    inherited = {name: os.environ[name] for name in profile.inherit_environment if name in os.environ}
    return {**inherited, **profile.environment}


def _tell(finding: Finding) -> None:
    _print({"check": finding.check, "verdict": finding.verdict, "text": finding.words})


def _print(document: Mapping[str, object]) -> None:
    sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m services.runner.verify", description=__doc__)
    parser.add_argument("--profile", default="", help="the agent of a profile")
    parser.add_argument("--profiles-directory", type=Path, help="profiles besides the built-in ones")
    parser.add_argument("--introduce", action="store_true", help="only see whether it opens a session")
    parser.add_argument("--directory", type=Path, default=Path(), help="where it works; default: here")
    parser.add_argument("--timeout", type=float, default=30.0, help="seconds for an answer")
    parser.add_argument("--start-timeout", type=float, default=60.0, help="seconds to start and to open")
    parser.add_argument("--prompt", default=SHORT, help="something that it answers soon")
    parser.add_argument("--long-prompt", default=LONG, help="something that takes it a while")
    parser.add_argument("command", nargs="*", help="the program and its arguments, behind --")
    return parser


if __name__ == "__main__":
    sys.exit(main())
