"""Files of plain nodes, and services that need rights which their node cannot give."""

from __future__ import annotations

import pytest

from testbed.errors import TestbedError
from testbed.lab.up import with_runtime
from testbed.plan.load import load_text

TOPOLOGY = """\
name: lab
nodes:
  web:
    files:
      www/index.html: |
        hello from ${dir}
    services:
      server: {command: [sleep, infinity], root: true}
  client:
links:
  - [web, client]
"""


def test_files_are_in_the_plan() -> None:
    """As they were written; the folder is put in when the lab starts."""
    web = load_text(TOPOLOGY)[1].node("web")
    assert [(file.path, file.text) for file in web.files] == [("www/index.html", "hello from ${dir}\n")]


def test_root_in_a_container_is_refused() -> None:
    """Also where the whole lab is moved into containers by the command line."""
    plan = load_text(TOPOLOGY)[1]
    with pytest.raises(TestbedError, match="server must be root") as caught:
        with_runtime(plan, "container")
    assert caught.value.where == "node web"
    assert with_runtime(plan, None) == plan
