"""requirements.lock against pyproject.toml."""

from __future__ import annotations

import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


def locked() -> dict[str, str]:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pins = [line.split("==") for line in lines if line and not line.startswith("#")]
    assert all(len(pin) == 2 for pin in pins), "only name==version"
    found = {canonicalize_name(name): version for name, version in pins}
    assert len(found) == len(pins), "a name twice"
    return found


def test_lock_fulfils_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pins = locked()
    extras = project["optional-dependencies"]
    for text in [*project["dependencies"], *extras["dev"], *extras["parquet"]]:
        need = Requirement(text)
        assert canonicalize_name(need.name) in pins, f"{need.name} is not in requirements.lock"
        assert need.specifier.contains(pins[canonicalize_name(need.name)], prereleases=True), text


def test_lock_names_no_address() -> None:
    text = (ROOT / "requirements.lock").read_text()
    assert "://" not in text
    assert "@" not in text
    assert "--" not in text
