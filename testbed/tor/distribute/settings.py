"""What a distributor is told: the instances, the tors that upload, the key, and where it keeps its things."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from testbed.errors import TestbedError
from testbed.tor.protocol.blinding import public_of
from testbed.tor.protocol.keys import onion_address, onion_public_key

Mode = Literal["distributor", "hybrid"]
_HEADER = b"== ed25519v1-secret: type0 =="


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Member(_Settings):
    """An instance, or another tor that uploads."""

    name: str
    control: str
    """Path of the control socket, or ``HOST:PORT``."""
    address: str = ""
    """The instance's own onion address where it has one; otherwise it has the service's."""


class Settings(_Settings):
    """All of it. Times in seconds."""

    mode: Mode = "distributor"
    key: str
    """Folder of the service (HiddenServiceDir), with ``hs_ed25519_secret_key``."""
    address: str = ""
    """What the key must belong to; empty: whatever it belongs to."""
    instances: tuple[Member, ...]
    agents: tuple[Member, ...] = ()
    """Tors that upload and fetch; none: the instances do."""
    folder: str
    """For the files ``counters.json``, ``status.json`` and ``events.jsonl``."""
    cookie: str = ""
    """File with the control cookie; empty: where tor says."""
    limit: int = Field(0, ge=0)
    """Most instances; 0: as many as the mode allows."""
    poll: float = Field(1.0, gt=0)
    """Between looks at an instance's descriptor."""
    verify: float = Field(30.0, gt=0)
    """Between looks at what the HSDirs hold."""
    rotate: float = Field(600.0, gt=0)
    """Between changes of which instances have one HSDir more, where they do not come out even."""
    refresh: float = Field(3600.0, gt=0)
    """Oldest that a placement gets: HSDirs drop a descriptor after three hours."""


class Secret(_Settings):
    """The identity key of the service."""

    expanded: bytes
    public: bytes

    @property
    def address(self) -> str:
        """With ``.onion``."""
        return onion_address(self.public)


def read_key(folder: Path, address: str = "") -> Secret:
    """The key of a HiddenServiceDir. TestbedError if there is none, or if it is not that of ``address``."""
    path = folder / "hs_ed25519_secret_key"
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise TestbedError(
            f"the service's key cannot be read: {error.strerror}",
            where=str(path),
            remedy="give the HiddenServiceDir of one of the instances",
        ) from error
    if not raw.startswith(_HEADER) or len(raw) != 96:
        raise TestbedError("not a secret key of a version 3 onion service", where=str(path))
    public = public_of(raw[32:])
    secret = Secret(expanded=raw[32:], public=public)
    hostname = folder / "hostname"
    told = hostname.read_text().strip() if hostname.is_file() else ""
    for wanted, source in ((address, "asked for"), (told, f"in {hostname}")):
        if wanted and wanted.removesuffix(".onion") != secret.address.removesuffix(".onion"):
            raise TestbedError(
                f"the key is that of {secret.address}, not of {wanted}, which is {source}",
                where=str(path),
                remedy="give the key that belongs to the address",
            )
    return secret


def read_address(address: str) -> bytes:
    """The public key in an address; TestbedError if it is none."""
    try:
        return onion_public_key(address)
    except ValueError as error:
        raise TestbedError(str(error)) from error
