"""The benches' harness: whose turn it is, what the numbers mean, what is printed."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from bench.harness.report import write
from bench.harness.results import Report
from bench.harness.sampling import interleaved, percentile, rate


async def test_contestants_take_turns_after_a_round_that_does_not_count() -> None:
    order: list[str] = []

    def contestant(name: str) -> Callable[[], Awaitable[float]]:
        async def measure() -> float:
            order.append(name)
            return float(len(order))

        return measure

    values = await interleaved(3, a=contestant("a"), b=contestant("b"))
    assert "".join(order) == "ba" + "ab" + "ba" + "ab"
    assert values == {"a": [3.0, 6.0, 7.0], "b": [4.0, 5.0, 8.0]}


async def test_a_rate_counts_what_all_workers_did() -> None:
    done = 0

    async def ten() -> int:
        nonlocal done
        done += 10
        return 10

    per_second = await rate(0.05, ten, ten)
    assert per_second == pytest.approx(done / 0.05, rel=0.5)


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1), (0.5, 50), (0.99, 99), (0.991, 100), (1.0, 100)])
def test_percentiles(share: float, expected: float) -> None:
    assert percentile([float(value) for value in range(100, 0, -1)], share) == expected


def test_json_has_medians_ratio_and_spread(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = Report()
    report.add("renewals", "1/s", [90.0, 100.0, 120.0], [50.0, 40.0, 60.0], against="signatures")
    report.add("alone", "s", [0.5])
    report.notes.append("no etcd here")
    write(report, str(tmp_path / "out.json"))
    document = json.loads((tmp_path / "out.json").read_text())
    assert document["results"][0] == {
        "metric": "renewals",
        "value": 100.0,
        "unit": "1/s",
        "reference": 50.0,
        "ratio": 2.0,
        "runs": 3,
        "spread": pytest.approx(0.3),
        "against": "signatures",
    }
    assert (document["results"][1]["reference"], document["results"][1]["ratio"]) == (None, None)
    assert document["notes"] == ["no etcd here"]
    assert "renewals" in capsys.readouterr().out


def test_json_on_stdout_is_alone_there(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report()
    report.add("alone", "s", [0.5])
    write(report, "-")
    printed = capsys.readouterr()
    assert json.loads(printed.out)["results"][0]["metric"] == "alone"
    assert "alone" in printed.err
