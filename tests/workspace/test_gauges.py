"""What the collector tells of itself: OpenTelemetry metrics by the standard variables."""

from __future__ import annotations

from typing import Any

from tests.databases import execute
from tests.otlp import receiving
from tests.workspace.garbage import told
from tests.workspace.instances import Machine
from tests.workspace.real import started


def _points(resources: list[Any], name: str) -> list[tuple[dict[str, Any], Any]]:
    """Attributes and value of each point of a metric in the newest export that has it."""
    found: list[tuple[dict[str, Any], Any]] = []
    for resource in resources:
        for metric in (each for scope in resource.scope_metrics for each in scope.metrics):
            if metric.name == name:
                kind = getattr(metric, metric.WhichOneof("data"))
                found = [(_attributes(point), _value(point)) for point in kind.data_points]
    return found


def _attributes(point: Any) -> dict[str, Any]:
    return {
        each.key: getattr(each.value, each.value.WhichOneof("value"))
        for each in point.attributes
        if each.key != "instance"
    }


def _value(point: Any) -> Any:
    return getattr(point, point.WhichOneof("value"))


async def test_passes_and_what_they_find_are_counted(machine: Machine) -> None:
    async with receiving() as receiver:
        endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint}
        async with started(machine, **endpoint) as service:
            client = await service.client()
            for name in ("w1", "w2", "w3"):
                await client.make(name)
            await execute(
                machine.database_url,
                "UPDATE workspace.workspaces SET state = 'FAILED' WHERE workspace_id = 'w1'",
            )
            assert told(await client.collect(dry_run=True)) == [("orphan", "w1", False)]
            assert told(await client.collect()) == [("orphan", "w1", True)]
            assert not (await client.collect()).garbage
            assert not (await client.collect(provider="local")).garbage
            assert await service.terminate() == 0
        sent = receiver.metrics.resources
    names = {entry.key: entry.value.string_value for entry in sent[-1].resource.attributes}
    assert names["service.name"] == "moorage-workspace"
    orphan = {"kind": "orphan", "provider": "local", "done": True}
    assert _points(sent, "moorage.workspace.garbage") == [(orphan, 1)]
    passes = {
        attributes["whole"]: count for attributes, count in _points(sent, "moorage.workspace.collections")
    }
    assert passes[True] >= 2, "dry runs do not count"
    assert passes[False] == 1, "what looked at one provider is no whole one"
    [(_, age)] = _points(sent, "moorage.workspace.collection_age")
    assert 0 <= age < 60
    points = _points(sent, "moorage.workspace.things")
    things = {each["thing"]: count for each, count in points if each["provider"] == "local"}
    assert things == {"directory": 2, "container": 0}
