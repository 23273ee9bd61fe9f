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


def test_addresses_are_put_in() -> None:
    """Of whatever node, in commands, environments and files; the plan that is stored and shown has them."""
    plan = load_text("""\
name: lab
nodes:
  web:
  client:
    files: {hosts: "${address:web} web ${dir}"}
    services:
      ask:
        command: [curl, "http://${address:web:second}:80/"]
        env: {WEB: "${address:web}/${address:core}"}
links:
  - {endpoints: [web, core], addresses: [192.168.1.1/30, 192.168.1.2/30]}
  - {endpoints: ["web:second", core], addresses: [192.168.2.1/30, 192.168.2.2/30]}
  - [client, core]
""")[1]
    client = plan.node("client")
    assert client.files[0].text == "192.168.1.1 web ${dir}"
    assert client.services[0].argv == ("curl", "http://192.168.2.1:80/")
    assert client.services[0].env == {"WEB": "192.168.1.1/192.168.1.2"}


def test_a_copy_of_a_plan_finds_its_own_nodes_and_links() -> None:
    """Also where they had been looked up in the plan before."""
    plan = load_text("name: lab\nnodes: {a: , b: }\nlinks: [[a, b]]\n")[1]
    assert (plan.node("a").runtime, len(plan.links_of("a"))) == ("process", 1)
    assert with_runtime(plan, "container").node("a").runtime == "container"
    assert plan.model_copy(update={"links": ()}).links_of("a") == []
