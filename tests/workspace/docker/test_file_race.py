"""Links swapped in by processes of a container while files are read and written from outside (W7)."""

from __future__ import annotations

from pathlib import Path

from tests.workspace.docker.yard import Yard, make
from tests.workspace.filing import Files
from tests.workspace.instances import Client, Holder
from tests.workspace.swaps import OUTSIDE, Outcomes, check_untouched

# What an access may meet while a directory or a file is a link, or is not there.
EXPECTED = ("FILE_NOT_FOUND", "NOT_A_DIRECTORY")
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
    outcomes = Outcomes(EXPECTED)
    async with client.exec(grant, "sh", "-c", SWAPPER, "swapper", str(outside)) as swapper:
        await swapper.read_until(b"swapping")
        # A file is empty before something is written to it.
        await outcomes.call_often(files, b"")
    check_untouched(outside, "f")
    outcomes.check()
