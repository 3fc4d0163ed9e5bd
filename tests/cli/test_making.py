"""Options that make a workspace: what is asked of the service, and what is refused before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer
from google.protobuf.duration_pb2 import Duration
from moorage.common.v1 import binding_pb2, provision_pb2
from moorage.session.v1 import session_pb2

from services.cli.making import Making, Network
from services.cli.quantities import bytes_of, duration_of, told_duration
from services.cli.wishes import OtherSession, Wishes
from services.common.quantities import told_bytes

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_a_container_is_asked_for_with_all_that_was_said() -> None:
    making = Making(
        docker=True,
        image="busybox",
        network=Network.bridge,
        cpus=0.5,
        memory="256m",
        pids=20,
        git="https://host/app.git#main",
        setup="make 'all of it'",
        ttl="12h",
        idle_ttl="30m",
    )
    assert making.spec(None) == provision_pb2.ProvisionSpec(
        provider="docker",
        image="busybox",
        network=provision_pb2.NETWORK_POLICY_BRIDGE,
        limits=provision_pb2.ResourceLimits(cpus=0.5, memory_bytes=256 * 2**20, pids=20),
        source=provision_pb2.WorkspaceSource(
            git=provision_pb2.GitSource(url="https://host/app.git", ref="main")
        ),
        setup=provision_pb2.SetupCommand(command=["make", "all of it"]),
        ttl=Duration(seconds=12 * 3600),
        idle_ttl=Duration(seconds=1800),
    )


def test_what_was_not_said_is_left_to_the_service() -> None:
    assert Making(docker=True).spec() == provision_pb2.ProvisionSpec(provider="docker")
    assert Making(provider="local").spec() == provision_pb2.ProvisionSpec(provider="local")
    assert not Making()


def test_what_is_in_it(tmp_path: Path) -> None:
    here = Making(docker=True).spec(tmp_path).source
    assert here.path.directory == str(tmp_path)
    commit = Making(git=f"https://host/app#{COMMIT}").spec().source.git
    assert (commit.url, commit.ref, commit.commit) == ("https://host/app", "", COMMIT)
    assert Making(archive="https://host/a.tar").spec().source.archive.url == "https://host/a.tar"
    file = tmp_path / "a.tar"
    file.write_bytes(b"files")
    assert Making(docker=True, archive=str(file)).spec(tmp_path).source.archive.data == b"files"
    assert not Making(docker=True, empty=True).spec(tmp_path).HasField("source")
    assert Making(empty=True)
    assert Making(empty=True).labels() == {"moorage.empty": "yes"}


@pytest.mark.parametrize(
    ("asked", "flag"),
    [
        ({"image": "busybox"}, "--image"),
        ({"network": Network.none}, "--network"),
        ({"cpus": 1.0}, "--cpus"),
        ({"memory": "1g"}, "--memory"),
        ({"pids": 3, "provider": "local"}, "--pids"),
        ({"docker": True, "provider": "local"}, "--docker and --provision"),
        ({"git": "https://a/b", "archive": "https://a/b"}, "--git and --archive"),
        ({"git": "https://a/b", "empty": True}, "--git and --empty"),
        ({"archive": "missing.tar"}, "--archive"),
        ({"setup": "'"}, "--setup"),
        ({"docker": True, "memory": "much"}, "--memory"),
        ({"ttl": "1 week"}, "--ttl"),
        ({"idle_ttl": "5"}, "--idle-ttl"),
    ],
)
def test_what_does_not_go_together_is_refused_by_its_option(asked: dict[str, Any], flag: str) -> None:
    with pytest.raises(typer.BadParameter) as refusal:
        Making(**asked).spec()
    assert refusal.value.param_hint == flag


def test_a_large_archive_is_to_be_named_by_its_url(tmp_path: Path) -> None:
    file = tmp_path / "large.tar"
    file.write_bytes(bytes(768 * 1024 + 1))
    with pytest.raises(typer.BadParameter, match="at most 768 KiB can be sent, larger ones by their URL"):
        Making(archive=str(file)).spec()


def test_quantities() -> None:
    assert [bytes_of("", text) for text in ("7", "1k", "1.5M", "2g")] == [7, 1024, 1572864, 2**31]
    sizes = (0, 7, 2**20, 2**29, 2**30 + 2**29, 2**30 + 1, -1)
    assert [told_bytes(size) for size in sizes] == [
        *("0 B", "7 B", "1 MiB", "512 MiB"),
        *("1536 MiB", "1073741825 B", "-1 B"),
    ]
    durations = [duration_of("", text) for text in ("90s", "1.5m", "2h", "7d", "1.5s")]
    assert [told_duration(each) for each in durations] == ["90s", "90s", "2h", "7d", "1.5s"]


def session(**fields: Any) -> session_pb2.Session:
    cloud = binding_pb2.Binding(cloud=binding_pb2.CloudBinding(provider="docker", workspace_ref="ws"))
    workspace = session_pb2.SessionWorkspace(
        state="READY", image="busybox", network=provision_pb2.NETWORK_POLICY_NONE
    )
    return session_pb2.Session(session_id="s", binding=cloud, workspace=workspace, **fields)


@pytest.mark.parametrize(
    ("making", "message"),
    [
        (Making(docker=True, image="other"), "--image: session s was made with busybox"),
        (Making(docker=True, network=Network.bridge), "--network: session s was made with none"),
        (Making(git="https://a/b"), "--git: session s was made with none"),
        (Making(docker=True, memory="1g"), "--memory: session s was made with none"),
        (Making(docker=True, empty=True), "--empty: session s was made with none"),
    ],
)
def test_a_session_keeps_what_it_was_made_with(making: Making, message: str) -> None:
    with pytest.raises(OtherSession, match=message):
        Wishes(session_pb2.AgentSpec(), making=making).check(session(), "")


def test_a_session_that_is_as_it_is_wished_goes_on() -> None:
    making = Making(docker=True, image="busybox", network=Network.none, git="https://a/b", cpus=0.5)
    made = session(labels=making.labels())
    Wishes(session_pb2.AgentSpec(), making=making).check(made, "")
    in_a_directory = binding_pb2.Binding(local=binding_pb2.LocalBinding(directory="/app"))
    made.binding.CopyFrom(in_a_directory)
    with pytest.raises(OtherSession, match="--docker: session s was made with /app"):
        Wishes(session_pb2.AgentSpec(), making=making).check(made, "")
