"""The files that run `rcil-serve` unattended."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml
from pages import ROOT, SCRIPTS, command_of, parse
from typer.main import get_command

from rcil_serve.cli.app import app
from rcil_serve.http.app import PUBLIC

DEPLOY = ROOT / "serve" / "deploy"
every_image = pytest.mark.parametrize("image", ["serve.Dockerfile", "train.Dockerfile"])
ANALYZE = shutil.which("systemd-analyze")


def environment():
    """The variables of the example, as systemd reads them."""
    lines = (DEPLOY / "gate.env").read_text().splitlines()
    pairs = [line.partition("=") for line in lines if line and not line.startswith("#")]
    return {name: value.removeprefix("'").removesuffix("'") for name, _, value in pairs}


def test_the_example_is_a_command_that_is_known():
    name, *words = shlex.split(environment()["RCIL_ARGS"])
    command = get_command(app).commands[name]
    parsed = command.make_context(name, words, resilient_parsing=False).params
    assert parsed["rule"] == ["forklift covers more than 5 % of dock for 2 s"]
    assert parsed["view"] == "0.0.0.0:8080"


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_unit(tmp_path):
    """With a program that exists on this machine."""
    text = (DEPLOY / "rcil-serve@.service").read_text()
    unit = tmp_path / "rcil-serve@.service"
    unit.write_text(text.replace("/opt/rcil/bin/rcil-serve", sys.executable))
    done = subprocess.run([ANALYZE, "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False)
    about = [line for line in done.stderr.splitlines() if "rcil-serve" in line]
    assert about == [] and done.returncode == 0, done.stderr


@every_image
def test_images_copy_what_exists_and_install_what_is_named(image):
    text = (DEPLOY / image).read_text()
    copied = [word for line in re.findall(r"^COPY (?!--)(.*) \S+$", text, re.MULTILINE) for word in line.split()]
    assert copied and all((ROOT / word).exists() for word in copied)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (extras,) = re.findall(r"\.\[([a-z,]+),\$\{EXTRA\}\]", text)
    assert {*extras.split(","), "cpu", "gpu"} <= project["optional-dependencies"].keys()
    assert "serve" in extras.split(","), "both images have rcil-serve, as docs/containers.md says"
    assert {project["readme"], *project["license-files"], "pyproject.toml", "constraints.txt"} <= set(copied)
    assert re.search(r"^ARG PYTHON=3\.1[123]$", text, re.MULTILINE), "a version that the wheel was tried with"


@every_image
def test_images_run_without_rights(image):
    """An ordinary user; the folders that are written to are a volume and /tmp."""
    text = (DEPLOY / image).read_text()
    assert re.findall(r"^USER (.*)$", text, re.MULTILINE) == ["10001"]
    assert "VOLUME /data" in text and "PYTHONDONTWRITEBYTECODE=1" in text and "MPLCONFIGDIR=/tmp/" in text
    (entry,) = re.findall(r'^ENTRYPOINT \["(\S+)"\]$', text, re.MULTILINE)
    assert entry in SCRIPTS


@every_image
def test_hadolint_has_no_objection(image):
    command = [Path(sys.executable).with_name("hadolint"), "--no-color", DEPLOY / image]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_the_compose_file_has_its_schema():
    command = [Path(sys.executable).with_name("check-jsonschema"), "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*command, DEPLOY / "compose.yaml"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_services_of_compose():
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    for service in services.values():
        assert service["read_only"] and service["cap_drop"] == ["ALL"] and service["tmpfs"]
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        if build := service.get("build"):
            assert (DEPLOY / build["context"]).resolve() == ROOT and (ROOT / build["dockerfile"]).exists()
            parse(["rcil-serve", *service["command"]])
    assert {name for name, service in services.items() if "build" in service} == {"serve-cpu", "serve-gpu"}


def test_commands_of_the_page_parse():
    found = re.findall(r"^docker run (.*)$", (ROOT / "docs" / "containers.md").read_text(), re.MULTILINE)
    assert len(found) == 4
    for line in found:
        words = shlex.split(line)
        at = next(place for place, word in enumerate(words) if word in ("rcil-serve", "rcil-train"))
        entry = words[words.index("--entrypoint") + 1] if "--entrypoint" in words else words[at].replace("-train", "")
        parse([entry, *words[at + 1 :]])


def health_check(port):
    """The program of the health check, with another port; returns its exit code."""
    text = (DEPLOY / "serve.Dockerfile").read_text()
    program = json.loads(re.search(r"^  CMD (\[.*\])$", text, re.MULTILINE)[1])
    assert program[:2] == ["python", "-c"] and ":8000/" in program[2]
    code = program[2].replace(":8000/", f":{port}/")
    return subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (503, False)])
def test_the_health_check_asks_whether_the_model_is_ready(status, healthy):
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status if self.path == "/v2/health/ready" else 404)
            self.end_headers()

        def log_message(self, *arguments):
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert (health_check(server.server_port) == 0) is healthy
        server.shutdown()
    assert health_check(server.server_port) != 0, "nothing listens any more"


def test_anybody_may_ask_whether_the_model_is_ready():
    assert "/v2/health/ready" in PUBLIC
    (port,) = [option.default for option in command_of(["rcil-serve", "http"])[0].params if option.name == "port"]
    assert port == 8000
