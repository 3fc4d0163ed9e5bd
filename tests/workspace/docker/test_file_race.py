"""Links swapped in by processes of a container while files are read and written from outside (W7)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable
from pathlib import Path

from services.common.errors import MoorageError
from tests.workspace.docker.yard import Yard, make
from tests.workspace.filing import Files
from tests.workspace.instances import Client, Holder

INSIDE = b"inside"
OUTSIDE = b"outside"
CALLS = 200
# What an access may meet while a directory or a file is a link, or is not there.
EXPECTED = {"done", "PATH_OUTSIDE_ROOT", "FILE_NOT_FOUND", "NOT_A_DIRECTORY"}
# The names in it lead nowhere in the container itself, which does not matter to links.
SWAPPER = """
mkdir -p d.real; printf inside > d.real/f; ln -s "$1" d.link
printf inside > f.real; ln -s "$1/f" f.link
echo swapping
while :; do
    mv -T d.link d; cp -P f.link f.new; mv -T f.new f; mv -T d d.link
    mv -T d.real d; printf inside > f.new; mv -T f.new f; mv -T d d.real
done
"""


async def test_nothing_outside_is_read_or_touched(
    client: Client, yard: Yard, holder: Holder, tmp_path: Path
) -> None:
    await make(client)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_bytes(OUTSIDE)
    grant = await holder.acquire()
    files = Files(client, grant)
    outcomes: Counter[str] = Counter()

    async def call(access: Awaitable[object]) -> None:
        try:
            found = await access
        except MoorageError as error:
            outcomes[error.reason_name] += 1
        else:
            # A file is empty before something is written to it.
            assert found in (INSIDE, b"", len(INSIDE)), found
            outcomes["done"] += 1

    async with client.exec(grant, "sh", "-c", SWAPPER, "swapper", str(outside)) as swapper:
        await swapper.read_until(b"swapping")
        for _ in range(CALLS):
            await asyncio.gather(
                call(files.read("d/f")),
                call(files.read("f")),
                call(files.write("d/f", INSIDE)),
                call(files.write("f", INSIDE)),
            )
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == {"f": OUTSIDE}
    assert not outcomes.keys() - EXPECTED, outcomes
    assert outcomes["done"] > 10, outcomes
    assert outcomes["PATH_OUTSIDE_ROOT"] > 10, outcomes
