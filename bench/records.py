"""Records: appended through the journal, against bare inserts of the same bytes, all into one database.

One holder writes batches one after the other, then many holders write single records at the same time;
each batch is committed with fsync before the next. The bare inserts have a connection for each writer.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Final

from bench.harness.journal import appends, bare_table
from bench.harness.places import scratch
from bench.harness.results import Effort, Report
from bench.harness.sampling import interleaved, rate
from services.cli.stack import StackOptions, run_stack
from services.common.channels import open_channel

_BATCHES: Final = (1, 100)
_HOLDERS: Final = 32


async def measure(effort: Effort) -> Report:
    """Records per second."""
    report = Report()
    with scratch() as directory:
        root = directory / "root"
        root.mkdir()
        async with (
            run_stack(StackOptions(root, directory / "state")) as stack,
            open_channel(stack.running.owner) as owner,
            open_channel(stack.running.session) as session,
            open_channel(stack.running.journal) as journal,
            contextlib.AsyncExitStack() as writers,
        ):
            postgres = stack.postgres
            assert postgres is not None
            names = [f"appends-{number}" for number in range(_HOLDERS)]
            ours = [
                await writers.enter_async_context(appends(owner, session, journal, name)) for name in names
            ]
            bare = [await writers.enter_async_context(bare_table(postgres.url, name)) for name in names]
            for size in _BATCHES:
                values = await interleaved(
                    effort.rounds,
                    ours=partial(rate, effort.seconds, partial(ours[0].append, size)),
                    bare=partial(rate, effort.seconds, partial(bare[0].insert, size)),
                )
                against = f"bare inserts of {size}"
                report.add(f"appends_per_s_by_{size}", "1/s", values["ours"], values["bare"], against=against)
            values = await interleaved(
                effort.rounds,
                ours=partial(rate, effort.seconds, *[partial(one.append, 1) for one in ours]),
                bare=partial(rate, effort.seconds, *[partial(one.insert, 1) for one in bare]),
            )
            against = f"bare inserts of 1 on {_HOLDERS} connections"
            metric = f"appends_per_s_of_{_HOLDERS}_holders"
            report.add(metric, "1/s", values["ours"], values["bare"], against=against)
    return report
