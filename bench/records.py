"""Records: appended through the journal by one holder, against bare inserts of the same bytes.

Both write batches of the same size one after the other, each committed with fsync, into one database.
"""

from __future__ import annotations

from functools import partial

from bench.harness.journal import appends, bare_table
from bench.harness.places import scratch
from bench.harness.results import Effort, Report
from bench.harness.sampling import interleaved, rate
from services.cli.stack import StackOptions, run_stack
from services.common.channels import open_channel

_BATCHES = (1, 100)


async def measure(effort: Effort) -> Report:
    """Records per second."""
    report = Report()
    with scratch() as directory:
        root = directory / "root"
        root.mkdir()
        async with run_stack(StackOptions(root, directory / "state")) as stack:
            running, postgres = stack.running, stack.postgres
            assert postgres is not None
            async with (
                open_channel(running.owner) as owner,
                open_channel(running.session) as session,
                open_channel(running.journal) as journal,
                appends(owner, session, journal) as ours,
                bare_table(postgres.url) as bare,
            ):
                for size in _BATCHES:
                    values = await interleaved(
                        effort.rounds,
                        ours=partial(rate, effort.seconds, partial(ours.append, size)),
                        bare=partial(rate, effort.seconds, partial(bare.insert, size)),
                    )
                    against = f"bare inserts of {size}"
                    report.add(
                        f"appends_per_s_by_{size}", "1/s", values["ours"], values["bare"], against=against
                    )
    return report
