"""The page in a real browser."""

import base64
import json
import shutil
import subprocess
from importlib.resources import files

import av
import cv2
import numpy as np
import pytest
from playwright.sync_api import expect
from servers import ANY_SIZE, NAMES, client_of, picture, png, rows_of, running, write_model
from triton_server import metadata_of

from rcil.core.palette import colours_for
from rcil_serve.http.app import make_app
from rcil_serve.http.options import HttpOptions

NODE = shutil.which("node")
IMAGE = picture(2, 96, 160)
COLOURS = np.array(colours_for(["background", "road", "cone", "ball"]))
ALPHA = 0.55
"""Where the page's slider stands at first."""


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return write_model(folder / "new.onnx", 2, ANY_SIZE), write_model(folder / "old.onnx", 1, ANY_SIZE)


@pytest.fixture(scope="module")
def address(models):
    with running(make_app(HttpOptions(models[0], previous=models[1], threads=1))) as address:
        yield f"http://{address}"


class Visit:
    """A page with everything that went wrong in it, and every host it asked."""

    def __init__(self, browser, address, **options):
        self.problems, self.hosts = [], set()
        self.page = browser.new_page(**options)
        self.page.set_default_timeout(20_000)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("console", lambda said: said.type == "error" and self.problems.append(said.text))
        self.page.on("request", lambda request: self.hosts.add(request.url.split("/")[2]))
        self.page.goto(address)

    def choose(self, name, kind, content):
        self.page.set_input_files("#file", {"name": name, "mimeType": kind, "buffer": content})

    def drop(self, name, kind, content):
        """As a file that is dragged into the window."""
        self.page.evaluate(
            """([name, type, text]) => {
                const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
                const dataTransfer = new DataTransfer();
                dataTransfer.items.add(new File([bytes], name, { type }));
                document.getElementById("drop").dispatchEvent(
                    new DragEvent("drop", { bubbles: true, cancelable: true, dataTransfer }));
            }""",
            [name, kind, base64.b64encode(content).decode()],
        )

    def drawn(self):
        """What the canvas shows, RGB [H, W, 3]."""
        text = self.page.evaluate("document.getElementById('picture').toDataURL('image/png')").partition(",")[2]
        return cv2.imdecode(np.frombuffer(base64.b64decode(text), np.uint8), cv2.IMREAD_COLOR)[..., ::-1]

    def view(self, name):
        self.page.check(f"input[name=view][value={name}]", force=True)

    def shares(self):
        """Percent by class name, as the legend shows them."""
        rows = self.page.locator("#classes li").all()
        return {
            row.locator(".name").evaluate("e => e.firstChild.textContent"): float(
                row.locator(".share").evaluate("e => e.firstChild.textContent").removesuffix(" %")
            )
            for row in rows
        }


@pytest.fixture
def visit(browser, address):
    made = []

    def go(**options):
        made.append(Visit(browser, address, **options))
        return made[-1]

    yield go
    for one in made:
        one.page.close()
        assert one.problems == []
        assert one.hosts == {address.removeprefix("http://")}, "no other host is asked"


def painted(rows):
    return np.where(rows[..., None] == 0, IMAGE, IMAGE * (1 - ALPHA) + COLOURS[rows] * ALPHA)


def test_a_dropped_image_is_painted(visit, tmp_path):
    here = visit(viewport={"width": 1280, "height": 800})
    expect(here.page.locator("#model")).to_contain_text("Step 2 · 4 classes")
    here.drop("street.png", "image/png", png(IMAGE))
    expect(here.page.locator("#changed")).to_contain_text("%")
    assert np.abs(here.drawn() - painted(rows_of(IMAGE, 2))).max() <= 1
    wanted = {n: 100 * (rows_of(IMAGE, 2) == r).mean() for r, n in enumerate(("background", "road", "cone", "ball"))}
    assert here.shares() == pytest.approx(wanted, abs=0.051)
    expect(here.page.locator("#latency")).to_contain_text("ms")
    assert "ball" in here.page.get_attribute("#picture", "aria-label")
    here.page.screenshot(path=tmp_path / "light.png")


def test_old_model_border_and_difference(visit):
    here = visit()
    here.choose("street.png", "image/png", png(IMAGE))
    new, old = rows_of(IMAGE, 2), rows_of(IMAGE, 1)
    changed = new != old
    expect(here.page.locator("#changed")).to_have_text(f"{100 * changed.mean():.1f} %")
    here.view("old")
    assert np.abs(here.drawn() - painted(old)).max() <= 1
    here.view("wipe")
    shown = here.drawn()
    assert np.abs(shown[:, :78] - painted(old)[:, :78]).max() <= 1
    assert np.abs(shown[:, 83:] - painted(new)[:, 83:]).max() <= 1
    here.view("difference")
    shown = here.drawn().astype(int)
    grey = shown.max(2) - shown.min(2) == 0
    assert grey[~changed].all() and not grey[changed].any()
    expect(here.page.locator("#difference-note")).to_be_visible()


def test_classes_can_be_hidden_and_colours_faded(visit):
    here = visit()
    here.choose("street.png", "image/png", png(IMAGE))
    expect(here.page.locator("#changed")).to_contain_text("%")
    here.page.uncheck("[aria-label='Paint ball']")
    rows = rows_of(IMAGE, 2)
    assert np.abs(here.drawn() - painted(np.where(rows == 3, 0, rows))).max() <= 1
    here.page.locator("#alpha").fill("0")
    assert np.abs(here.drawn().astype(int) - IMAGE).max() == 0


def test_the_sample_on_a_dark_phone(visit, tmp_path):
    here = visit(
        viewport={"width": 390, "height": 844},
        color_scheme="dark",
        device_scale_factor=2,
        has_touch=True,
        is_mobile=True,
    )
    here.page.tap("#sample")
    expect(here.page.locator("#classes li")).to_have_count(4)
    assert here.page.evaluate("document.documentElement.scrollWidth") <= 390, "nothing sticks out"
    background = here.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == "rgb(13, 17, 23)"
    for control in here.page.locator("button:visible, input[type=range]:visible").all():
        assert control.bounding_box()["height"] >= 44, "large enough for a finger"
    here.page.screenshot(path=tmp_path / "dark_phone.png", full_page=True)


def clip(path, images):
    """The images as a VP8 clip, ten a second."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libvpx", rate=10)
        stream.height, stream.width = images[0].shape[:2]
        stream.pix_fmt = "yuv420p"
        stream.bit_rate = 4_000_000
        for image in images:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, "rgb24")))
        container.mux(stream.encode())
    return path.read_bytes()


def test_a_clip_is_followed(visit, tmp_path):
    """Dark frames, then bright ones: what the model sees changes as the clip plays."""
    frames = [np.full((96, 160, 3), value, np.uint8) for value in [0] * 10 + [120] * 10]
    here = visit()
    here.choose("clip.webm", "video/webm", clip(tmp_path / "clip.webm", frames))
    most = here.page.locator("#classes .name").first
    for name in ("background", "ball", "background"):
        expect(most).to_contain_text(name, timeout=20_000)
    expect(here.page.locator("#rate")).not_to_have_text("–")
    here.page.click("#play")
    expect(here.page.locator("#play")).to_have_text("Play")
    here.page.locator("#seek").fill("0.9")
    expect(most).to_contain_text("ball")
    here.page.locator("#seek").fill("0.1")
    expect(most).to_contain_text("background")
    here.page.locator("#seek").fill("0.9")
    here.view("old")
    expect(here.page.locator("#changed")).to_have_text("100.0 %")


def test_errors_are_said_in_words(visit):
    here = visit()
    here.choose("notes.txt", "text/plain", b"hello")
    expect(here.page.locator("#problem")).to_contain_text("notes.txt is not an image or clip")
    here.choose("clip.webm", "video/webm", b"hello")
    expect(here.page.locator("#problem")).to_contain_text("cannot play clip.webm")
    expect(here.page.locator("#status")).to_have_text("")
    here.choose("street.png", "image/png", png(IMAGE))
    expect(here.page.locator("#classes li")).to_have_count(4)
    expect(here.page.locator("#problem")).to_be_hidden()


def test_the_token_is_asked_for(browser, models):
    with running(make_app(HttpOptions(models[0], token="s3cret", threads=1))) as address:
        here = Visit(browser, f"http://{address}")
        for token in ("wrong", "s3cret"):
            expect(here.page.locator("#ask")).to_be_visible()
            here.page.fill("#token", token)
            here.page.keyboard.press("Enter")
        expect(here.page.locator("#model")).to_contain_text("Step 2")
        here.choose("street.png", "image/png", png(IMAGE))
        expect(here.page.locator("#classes li")).to_have_count(4)
        expect(here.page.locator("#views")).to_be_hidden()
        assert all("401" in problem for problem in here.problems)
        here.page.close()


def test_a_reload_shows_in_the_page(browser, tmp_path):
    path = write_model(tmp_path / "m.onnx", 1, ANY_SIZE)
    with client_of(make_app(HttpOptions(path, threads=1))) as client:
        here = Visit(browser, str(client.base_url))
        here.choose("street.png", "image/png", png(IMAGE))
        expect(here.page.locator("#classes li")).to_have_count(3)
        write_model(path, 2, ANY_SIZE)
        assert client.post("/v2/repository/models/rcil/load").status_code == 200
        here.choose("street.png", "image/png", png(IMAGE))
        expect(here.page.locator("#classes li")).to_have_count(4)
        expect(here.page.locator("#views")).to_be_visible()
        expect(here.page.locator(".badge")).to_have_text("new")
        assert "ball new" in here.page.inner_text("#classes"), "the words are apart, also for screen readers"
        here.page.close()


def test_class_ids_that_do_not_fit_into_a_byte(browser, tmp_path):
    metadata = metadata_of(NAMES[:3])
    ids = (0, 300, 7, 65535)
    classes = tuple(c.model_copy(update={"id": i}) for c, i in zip(metadata.classes, ids, strict=True))
    metadata = metadata.model_copy(update={"classes": classes})
    path = write_model(tmp_path / "m.onnx", 2, ANY_SIZE, metadata)
    with client_of(make_app(HttpOptions(path, threads=1))) as client:
        here = Visit(browser, str(client.base_url))
        here.choose("street.png", "image/png", png(IMAGE))
        expect(here.page.locator("#classes li")).to_have_count(4)
        assert np.abs(here.drawn() - painted(rows_of(IMAGE, 2))).max() <= 1
        assert here.shares()["ball"] == pytest.approx(100 * (rows_of(IMAGE, 2) == 3).mean(), abs=0.051)
        here.page.close()


@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_colours_and_shares_go_by_row(tmp_path):
    """The tables of the page by themselves, where there is no browser."""
    for name in ("draw", "legend"):
        text = files("rcil_serve.http").joinpath("page", f"{name}.js").read_text()
        (tmp_path / f"{name}.mjs").write_text(text.replace('"./draw.js"', '"./draw.mjs"'))
    (tmp_path / "ask.mjs").write_text(
        """
        import { changedShare, tableOf } from "./draw.mjs";
        import { rowsOf } from "./legend.mjs";
        const entry = (name, id, red) => ({ name, id, colour: [red, 0, 0], step: 0 });
        const now = [entry("background", 0, 0), entry("road", 65535, 7), entry("cone", 300, 9)];
        const before = [entry("background", 0, 0), entry("cone", 1000, 9)];
        const names = ["background", "road", "cone"];
        const [table, old] = [tableOf(now, new Set(["road"]), names), tableOf(before, new Set(), names)];
        const masks = [Uint8Array.of(0, 1, 2, 2), Uint8Array.of(0, 0, 1, 1)];
        const models = { current: { classes: now, step: 0 }, previous: { classes: before } };
        console.log(JSON.stringify({
            colours: Array.from(table.colour.subarray(0, 9)),
            painted: Array.from(table.painted.subarray(0, 3)),
            changed: changedShare(...masks, table, old),
            shares: rowsOf(models, ...masks).map(({ name, share, old }) => [name, share, old]),
        }));
        """
    )
    done = subprocess.run([NODE, str(tmp_path / "ask.mjs")], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {
        "colours": [0, 0, 0, 7, 0, 0, 9, 0, 0],
        "painted": [0, 0, 1],
        "changed": 0.25,
        "shares": [["cone", 0.5, 0.5], ["background", 0.25, 0.5], ["road", 0.25, None]],
    }


def test_an_image_that_was_left_does_not_come_back(browser, tmp_path):
    """Its class table arrives after the next image was opened."""
    path = write_model(tmp_path / "m.onnx", 1, ANY_SIZE)
    with client_of(make_app(HttpOptions(path, threads=1))) as client:
        here = Visit(browser, str(client.base_url))
        here.choose("street.png", "image/png", png(IMAGE))
        expect(here.page.locator("#classes li")).to_have_count(3)
        write_model(path, 2, ANY_SIZE)
        assert client.post("/v2/repository/models/rcil/load").status_code == 200
        held = []
        here.page.route("**/classes", lambda route: held.append(route))
        for count, size in ((1, (40, 40)), (2, (96, 160))):
            here.choose("other.png", "image/png", png(picture(3, *size)))
            while len(held) < count:
                here.page.wait_for_timeout(20)
        held[1].continue_()
        expect(here.page.locator("#classes li")).to_have_count(4)
        expect(here.page.locator("#changed")).to_contain_text("%")
        held[0].continue_()
        here.page.wait_for_timeout(500)
        assert here.drawn().shape == (96, 160, 3)
        here.page.close()


def test_the_page_names_no_other_host(models):
    with client_of(make_app(HttpOptions(models[0], threads=1))) as client:
        for path in ("/", "/page.css", "/page.js", "/api.js", "/draw.js", "/legend.js"):
            answer = client.get(path)
            assert answer.status_code == 200
            assert "://" not in answer.text, path
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        described = client.get("/classes").json()
        assert described["previous"] is None
        assert [c["name"] for c in described["current"]["classes"]] == ["background", "road", "cone", "ball"]
