"""The commands validate, plan, graph and schema, as a user calls them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.cli import main
from testbed.plan.load import load_topology
from testbed.plan.types import Plan

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "topologies" / "demo.yaml"
TWO_SITES = """\
name: two-sites
nodes:
  r1: {kind: router}
  r2: {kind: router}
  web:
    runtime: container
    memory: 64MiB
    services: {http: {command: [nginx, -g, "daemon off;"]}}
  the-client-with-a-long-name:
links:
  - {endpoints: [r1, r2], delay: 20ms, jitter: 2ms, rate: 10mbit, backward: {rate: 2mbit}}
  - [web, r1]
  - {endpoints: [the-client-with-a-long-name, r2], loss: 0.5%}
"""
PLAN = """\
two-sites: 4 nodes (2 hosts, 2 routers), 3 links
seed 0, digest DIGEST

node                         kind    runtime                   addresses
r1                           router  process                   10.0.0.0 10.0.0.2
r2                           router  process                   10.0.0.1 10.0.0.4
web                          host    container (memory 64MiB)  10.0.0.3
the-client-with-a-long-name  host    process                   10.0.0.5

link | addresses | to | addresses | mtu | traffic
r1:to-r2 | 10.0.0.0/31 | r2:to-r1 | 10.0.0.1/31 | 1500 | there: delay 20ms ±2ms, rate 10mbit; back: delay 20ms ±2ms, rate 2mbit
web:eth0 | 10.0.0.3/31 | r1:to-web | 10.0.0.2/31 | 1500
the-client-with-a-long-name:eth0 | 10.0.0.5/31 | r2:to-the-client-with-a-long-name (KERNEL) | 10.0.0.4/31 | 1500 | each way: loss 0.5%

node  service  command
web   http     nginx -g daemon off;

node                         destination  via       interface
r1                           10.0.0.4/31  10.0.0.1  to-r2
r2                           10.0.0.2/31  10.0.0.0  to-r1
web                          default      10.0.0.2  eth0
the-client-with-a-long-name  default      10.0.0.4  eth0
"""  # noqa: E501
"""The columns of links are wide; here they are parted by bars."""


def test_validate_says_ok_for_each_and_shows_the_mistakes_of_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("wrong.yaml").write_text("name: NO\nnodes: {a: }\n")
    Path("good.yaml").write_text(TWO_SITES)
    assert main(["validate", "good.yaml", "wrong.yaml", "missing.yaml", "good.yaml"]) == 2
    out, err = capsys.readouterr()
    assert out == "good.yaml: OK: two-sites: 4 nodes (2 hosts, 2 routers), 3 links\n" * 2
    heads = [line.partition(" ")[0] for line in err.splitlines() if not line.startswith(" ")]
    assert heads == ["wrong.yaml:1:7:", "missing.yaml:"]
    assert main(["validate", "good.yaml"]) == 0


def test_plan_shows_nodes_links_services_and_routes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "two-sites.yaml"
    path.write_text(TWO_SITES)
    _, plan = load_topology(path)
    assert main(["plan", str(path), "--routes"]) == 0
    shown = capsys.readouterr().out.splitlines()
    start = next(number for number, line in enumerate(shown) if line.startswith("link "))
    shown[start : start + 4] = [re.sub("  +", " | ", line) for line in shown[start : start + 4]]
    wanted = PLAN.replace("DIGEST", plan.digest()[:16]).replace("KERNEL", plan.links[2].b.ifname)
    assert shown == wanted.splitlines()


def test_plan_as_json_is_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--json", str(DEMO)]) == 0
    assert Plan.model_validate_json(capsys.readouterr().out) == load_topology(DEMO)[1]


def test_graph_writes_beside_where_one_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["graph", str(DEMO)]) == 0
    assert (tmp_path / "demo.svg").read_text().startswith("<?xml")
    assert main(["graph", str(DEMO), "-o", "other.png"]) == 0
    assert main(["graph", str(DEMO), "-o", "other.txt"]) == 1


@pytest.mark.parametrize("command", ["plan", "graph"])
def test_a_wrong_topology_is_exit_code_2_without_traceback(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text("name: lab\nnodes: {a: {kind: [red]}}\n")
    assert main([command, str(path)]) == 2
    assert capsys.readouterr().err.startswith(
        f"{path}:2:13: `kind` is a list, which is not one of host, router, switch\n"
    )


def test_what_a_file_says_cannot_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text('name: lab\n"\\u202Ered\\x9B31m": 1\nnodes: {"\\e[31m": }\n')
    assert main(["validate", str(path)]) == 2
    said = capsys.readouterr().err
    assert "unknown key `\\u202ered\\x9b31m`" in said
    assert not set("\x1b\x9b\u202e") & set(said)


def test_unknown_command_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nonsense"]) == 2
    assert main(["--help"]) == 0
    assert main(["--version"]) == 0
    assert "validate" in capsys.readouterr().out


def test_help_imports_nothing_heavy() -> None:
    """`testbed --help` and `testbed up` must start fast."""
    code = "import sys, testbed.cli; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    heavy = {"pydantic", "matplotlib", "numpy", "yaml", "pyroute2", "docker", "scipy", "jinja2", "stem", "rich.console"}
    assert heavy & set(modules) == set()


AS_NOBODY = """
import os, sys
if os.getuid() == 0:
    os.setuid(65534)
from testbed.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_no_root_is_needed() -> None:
    """As the user nobody, in a folder where it may not write."""
    command = [sys.executable, "-c", AS_NOBODY, "plan", "--json", str(DEMO)]
    run = subprocess.run(command, capture_output=True, text=True, cwd="/", check=False)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["name"] == "demo"
