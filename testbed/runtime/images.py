"""The container image of nodes: made here, from Debian's packages, with or without a registry.

The base is ``debian:bookworm-slim`` where a registry can be reached. Elsewhere ``mmdebstrap`` makes one from the
package sources of this machine; it then holds all packages already, and the build needs no network.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from testbed.errors import ApplyError, PreflightError
from testbed.runtime import engine

if TYPE_CHECKING:
    from docker import DockerClient

DEFAULT_IMAGE = "testbed/node:1"
LABEL = "testbed.image"
"""Label whose value is the digest of what an image was made from."""
PUBLIC_BASE = "debian:bookworm-slim"
LOCAL_BASE = "testbed/base"
DEFINITION = Path(__file__).parents[2] / "images" / "node"
PULL_SECONDS = 15.0
"""Longest silence of a pull before a registry counts as absent, seconds."""

_LEFT_OUT = ("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/info/*", "/usr/share/lintian/*")
_SOURCES = ("/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list.d/ubuntu.sources", "/etc/apt/sources.list")

Say = Callable[[str], None]


def digest(definition: Path = DEFINITION) -> str:
    """SHA-256 over the names and contents of the files that an image is made from, hexadecimal."""
    total = hashlib.sha256()
    for path in sorted(definition.rglob("*")):
        if path.is_file():
            content = path.read_bytes()
            total.update(f"{path.relative_to(definition)}\0{len(content)}\0".encode() + content)
    return total.hexdigest()


def labels(image: str) -> dict[str, str] | None:
    """The labels of an image; None if there is no such image. Raises ``engine.EngineError``."""
    answer = engine.get(f"/images/{image}/json")
    return None if answer is None else dict(answer["Config"].get("Labels") or {})


def state(image: str = DEFAULT_IMAGE) -> str:
    """``present``, ``absent``, or ``outdated`` (ours, but made from another definition than the one here)."""
    found = labels(image)
    if found is None:
        return "absent"
    return "outdated" if image == DEFAULT_IMAGE and found.get(LABEL) != digest() else "present"


def missing_message(image: str) -> tuple[str, str]:
    """What to say of an image that is absent: (what, remedy)."""
    remedy = "run `sudo make setup` or `testbed images build`" if image == DEFAULT_IMAGE else f"docker pull {image}"
    return f"there is no container image {image}", remedy


def require(image: str) -> None:
    """Raise PreflightError with the remedy if the engine lacks an image."""
    if labels(image) is None:
        what, remedy = missing_message(image)
        raise PreflightError(what, remedy=remedy)


def build(*, force: bool = False, say: Say = lambda text: None) -> bool:
    """Make the default image unless the one that is there was made from the same definition.

    ``force`` makes it anew, with today's packages. Returns whether anything was made. ApplyError says what failed.
    """
    before = engine.get(f"/images/{DEFAULT_IMAGE}/json")
    if not force and state() == "present":
        return False
    client = engine.connect()
    try:
        _build_from_either_base(client, force, say)
        if before is not None:
            _drop(client, str(before["Id"]))
    finally:
        client.close()
    return True


def remove(say: Say = lambda text: None) -> None:
    """Remove the images that ``build`` made, in all their versions."""
    client = engine.connect()
    try:
        ids = [image["Id"] for image in client.api.images(filters={"label": LABEL})]
        for image in ids:
            if not _drop(client, image, force=True):
                say(f"{image} is in use by a container and stays")
    finally:
        client.close()


def _build_from_either_base(client: DockerClient, force: bool, say: Say) -> None:
    if _public_base(client, force, say):
        try:
            _build_on(client, PUBLIC_BASE, "host", force, say)
        except ApplyError as error:
            say(f"no image from {PUBLIC_BASE}: {error.what}")
        else:
            return
    _build_on(client, _local_base(client, force, say), "none", force, say)


def _public_base(client: DockerClient, force: bool, say: Say) -> bool:
    """Pull the public base; False where that cannot be done."""
    import docker.errors
    import requests

    if not force and labels(PUBLIC_BASE) is not None:
        return True
    name, _, tag = PUBLIC_BASE.partition(":")
    impatient = engine.connect(timeout=PULL_SECONDS)
    try:
        for line in impatient.api.pull(name, tag=tag, stream=True, decode=True):
            if "error" in line:
                raise docker.errors.DockerException(line["error"])
    except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
        say(f"{PUBLIC_BASE} cannot be pulled ({_short(str(error))}); making a base from Debian's packages")
        return False
    finally:
        impatient.close()
    return True


def _short(text: str) -> str:
    return text.strip().strip('")').rpartition(": ")[2][-120:]


def _local_base(client: DockerClient, force: bool, say: Say) -> str:
    """The tag of a base image made by mmdebstrap, holding every package of the definition."""
    release = _codename()
    tag = f"{LOCAL_BASE}:{release}"
    packages = [word for word in (DEFINITION / "packages.txt").read_text().split() if word]
    mark = hashlib.sha256(" ".join([release, *packages]).encode()).hexdigest()
    found = labels(tag)
    if not force and found is not None and found.get(LABEL) == mark:
        return tag
    program = shutil.which("mmdebstrap", path="/usr/bin:/usr/local/bin")
    if program is None:
        raise ApplyError("an image base cannot be made: there is no mmdebstrap", remedy="run `sudo make setup`")
    sources = [path for path in _SOURCES if Path(path).is_file() and release in Path(path).read_text()][:1]
    command = [program, "--quiet", "--variant=minbase", f"--include={','.join(packages)}"]
    command += [f"--dpkgopt=path-exclude={pattern}" for pattern in _LEFT_OUT]
    say(f"making {tag} with mmdebstrap, some 20 seconds")
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            [*command, release, "-", *sources], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors
        ) as child,
    ):
        assert child.stdout is not None
        with engine.translated(f"importing {tag}"):
            client.api.import_image_from_stream(
                _chunks(child.stdout), repository=LOCAL_BASE, tag=release, changes=[f"LABEL {LABEL}={mark}"]
            )
        status = child.wait()
        errors.seek(0)
        words = errors.read().decode(errors="replace")
    if status:
        _drop(client, tag, force=True)
        raise ApplyError(f"mmdebstrap ended with status {status}:\n{words[-1500:]}")
    _drop_dangling(client)
    return tag


def _chunks(stream: IO[bytes]) -> Iterator[bytes]:
    while block := stream.read(1 << 20):
        yield block


def _codename() -> str:
    """Debian's or Ubuntu's release name of this machine, whose package sources are at hand."""
    release: dict[str, str] = {}
    for line in Path("/etc/os-release").read_text().splitlines():
        key, _, value = line.partition("=")
        release[key] = value.strip('"')
    if release.get("ID") in ("debian", "ubuntu") and release.get("VERSION_CODENAME"):
        return release["VERSION_CODENAME"]
    return "bookworm"


def _build_on(client: DockerClient, base: str, network: str, force: bool, say: Say) -> None:
    say(f"building {DEFAULT_IMAGE} on {base}")
    words: list[str] = []
    with engine.translated(f"building {DEFAULT_IMAGE}"):
        stream = client.api.build(
            path=str(DEFINITION),
            tag=DEFAULT_IMAGE,
            buildargs={"BASE": base},
            labels={LABEL: digest()},
            network_mode=network,
            nocache=force,
            rm=True,
            forcerm=True,
            decode=True,
        )
        for line in stream:
            words.append(_words(line))
            if "error" in line:
                raise ApplyError(f"building {DEFAULT_IMAGE} on {base} failed:\n" + "".join(words)[-1500:])


def _words(line: dict[str, Any]) -> str:
    return str(line.get("stream") or line.get("error") or "")


def _drop(client: DockerClient, image: str, *, force: bool = False) -> bool:
    """Remove an image unless it has a name again or a container uses it."""
    import docker.errors

    try:
        found = client.api.inspect_image(image)
        if found.get("RepoTags") and not force:
            return True
        client.api.remove_image(image, force=force)
    except docker.errors.ImageNotFound:
        pass
    except docker.errors.APIError:
        return False
    return True


def _drop_dangling(client: DockerClient) -> None:
    for image in client.api.images(filters={"label": LABEL, "dangling": True}):
        _drop(client, str(image["Id"]))
