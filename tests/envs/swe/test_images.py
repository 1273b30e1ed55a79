"""Images for sandboxes: built once, only the workspace and /tmp writable, a task's own workspace kept."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import docker
import pytest
from refork.envs.forkable import InfraFailure
from refork.envs.swe import images
from refork.envs.swe.sandbox.base import SandboxSpec, UnsupportedHost
from refork.envs.swe.sandbox.docker import DockerBackend
from refork.envs.swe.sandbox.docker_client import connect
from refork.envs.swe.sandbox.docker_container import Container
from refork.envs.swe.sandbox.manifest import digest_tree

TASK = "refork-test-task:v1"
TASK_FILE = """
FROM {base}
USER root
RUN mkdir -p /testbed/src /opt/open /srv/spool && echo 'X = 1' > /testbed/src/x.py && chmod 777 /opt/open \
 && cp /bin/sh /opt/open/shell && chmod 6755 /opt/open/shell && touch /srv/spool/f && chown -R 1000 /srv/spool \
 && echo left > /tmp/left && chmod 600 /testbed/src/x.py
"""


@pytest.fixture(scope="module")
def client() -> Iterator[docker.APIClient]:
    try:
        made = connect()
    except UnsupportedHost as error:
        pytest.skip(os.environ.get("REFORK_DOCKER_SKIPPED") or str(error))
    yield made
    made.close()


@pytest.fixture
def task_image(client: docker.APIClient) -> Iterator[str]:
    source = TASK_FILE.format(base=images.base_image(client)).encode()
    log = list(client.build(fileobj=io.BytesIO(source), tag=TASK, network_mode="none", rm=True, decode=True))
    assert "error" not in log[-1], log[-1]
    yield TASK
    client.remove_image(images.task_image(client, TASK))
    client.remove_image(TASK)


@pytest.mark.docker
def test_a_task_s_own_image_is_made_fit_and_its_workspace_is_not_sent(
    task_image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = tmp_path / "base"
    (base / "src").mkdir(parents=True)
    (base / "src" / "x.py").write_text("X = 1\n")
    sent: list[str] = []
    ask = Container.ask

    def spy(self: Container, op: str, **fields: object) -> object:
        sent.extend(row[0] for row in fields.get("make", ()) if row[3])  # type: ignore[attr-defined]
        return ask(self, op, **fields)  # type: ignore[arg-type]

    monkeypatch.setattr(Container, "ask", spy)
    spec = SandboxSpec(base, digest_tree(base), image=task_image, preload=())
    with closing(DockerBackend(tmp_path / "states", spare=0)) as backend, backend.open(spec) as sandbox:
        assert dict(sandbox.changes) == {}
        shown = sandbox.run(
            ["sh", "-c", "stat -c '%a %u %n' /opt/open /opt/open/shell /srv/spool; find /tmp; cat src/x.py"]
        )
        assert shown.output == "775 0 /opt/open\n755 0 /opt/open/shell\n755 0 /srv/spool\n/tmp\nX = 1\n"
    assert sent == ["/testbed/src/x.py"]


@pytest.mark.docker
def test_an_image_is_built_once(
    client: docker.APIClient,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "module.py").write_text("A = 1\n")
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "module.pyc").write_text("junk")
    first = images.local_image(client, tmp_path)
    monkeypatch.setattr(images, "_build", lambda *_: pytest.fail("built again"))
    assert images.local_image(client, tmp_path) == first
    spec = SandboxSpec(tmp_path, digest_tree(tmp_path), python_env=tmp_path, preload=())
    with closing(DockerBackend(tmp_path_factory.mktemp("states"), spare=0)) as backend, backend.open(spec) as sandbox:
        listing = sandbox.run(["sh", "-c", "cd /opt/env; ls -A; stat -c '%a %u' module.py; python -c 'import module'"])
        assert listing.output == "module.py\n644 0\n"
    client.remove_image(first)


@pytest.mark.docker
def test_a_build_that_fails_says_why(client: docker.APIClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "Dockerfile"
    broken.write_text("ARG BASE\nFROM ${BASE}\nRUN echo no space left on device >&2; exit 1\n")
    monkeypatch.setattr(images, "DOCKERFILE", broken)
    with pytest.raises(InfraFailure, match=r"(?s)on top of .* could not be built: .*no space.*disk under the"):
        images.local_image(client, None)


@pytest.mark.parametrize(
    ("image", "repository", "tag"),
    [
        ("python:3.11-slim", "python", "3.11-slim"),
        ("swebench/sweb.eval.x86_64.a_1776_b-1", "swebench/sweb.eval.x86_64.a_1776_b-1", "latest"),
        ("localhost:5000/a/b", "localhost:5000/a/b", "latest"),
        ("localhost:5000/a/b:v2", "localhost:5000/a/b", "v2"),
        ("a/b@sha256:00ff", "a/b@sha256:00ff", None),
    ],
)
def test_what_is_pulled(image: str, repository: str, tag: str | None) -> None:
    assert images.pulled(image) == (repository, tag)


def test_without_a_registry_or_debootstrap_the_failure_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images.shutil, "which", lambda _: None)
    cause = InfraFailure("image python:3.11-slim is not there and cannot be pulled: no such host")
    with pytest.raises(InfraFailure, match=r"no such host; nor can a base be made here: install debootstrap"):
        images._make_debian(tmp_path / "base.tar", cause)
    assert list(tmp_path.iterdir()) == []
