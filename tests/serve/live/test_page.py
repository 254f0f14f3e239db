"""The live view in a real browser."""

import contextlib
import threading
import time
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
from playwright.sync_api import expect
from served import Threshold

from rcil_serve.live.pictures import Pictures
from rcil_serve.live.server import ViewOptions, serving
from rcil_serve.live.view import LiveView
from rcil_serve.runtime.predictor import Predictor
from rcil_serve.stream.frames import Counts, Frame, SourceInfo
from rcil_serve.stream.pipeline import SegmentedFrame

MODEL = Threshold()


@contextlib.contextmanager
def playing(alarms, **options):
    """A view that gets ten frames per second, and its address."""
    info = SourceInfo("gate", (90, 160), Fraction(10), Fraction(1, 1000), live=True)
    view = LiveView(SimpleNamespace(info=info, counts=Counts(dropped=7)), MODEL, Pictures(), alarms, watching=True)
    over, predictor = threading.Event(), Predictor(MODEL)

    def play():
        for index in range(10**6):
            pixels = np.zeros((90, 160, 3), np.uint8)
            pixels[:, :40, 0] = 255
            frame = Frame(index, index, index / 10, pixels, time.perf_counter())
            view.publish(SegmentedFrame(frame, predictor.segment(pixels), 0.012), MODEL.metadata.classes)
            if over.wait(0.1):
                return

    told, thread = [], threading.Thread(target=play)
    with serving(view, ViewOptions(port=0, **options), told.append):
        thread.start()
        try:
            yield view, told[0].removeprefix("live view: ")
        finally:
            over.set()
            thread.join()


@contextlib.contextmanager
def opened(browser, address, **options):
    problems, hosts = [], set()
    page = browser.new_page(**options)
    page.set_default_timeout(20_000)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda said: said.type == "error" and problems.append(said.text))
    page.on("request", lambda request: request.url.startswith("http") and hosts.add(request.url.split("/")[2]))
    page.goto(address)
    yield page, problems
    page.close()
    assert hosts == {address.removeprefix("http://")}, "no other host is asked"


def test_frames_areas_alarms_and_events(browser):
    alarms = []
    with playing(lambda: alarms) as (view, address), opened(browser, address) as (page, problems):
        expect(page.locator("#source")).to_have_text("gate")
        expect(page.locator("#light")).to_have_text("Live")
        expect(page.locator("#picture")).to_be_visible()
        assert page.evaluate("document.getElementById('picture').naturalWidth") == 160
        first = page.get_attribute("#picture", "src")
        page.wait_for_function("before => document.getElementById('picture').src !== before", arg=first)
        expect(page.locator("#classes li").first).to_contain_text("a25.0 %", use_inner_text=False)
        expect(page.locator("#infer")).to_have_text("12 ms")
        expect(page.locator("#dropped")).to_have_text("7")
        expect(page.locator("#alarms")).to_be_hidden()
        alarms.append("a covers more than 5 % of dock for 2 s")
        view.add_event("raised", "2026-01-31T12:00:00+00:00", 3.0, f"ALARM   {alarms[0]}: 25.0 %")
        expect(page.locator("#standing li")).to_have_text(alarms)
        expect(page.locator("#events li")).to_contain_text("25.0 %")
        assert page.title() == "(1) gate – live view"
        alarms.clear()
        expect(page.locator("#alarms")).to_be_hidden()
        assert problems == []


def test_a_phone_shows_everything(browser):
    size = {"width": 390, "height": 844}
    with (
        playing(lambda: ["fire"]) as (_, address),
        opened(browser, address, viewport=size, color_scheme="dark") as (page, problems),
    ):
        expect(page.locator("#picture")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, "nothing sticks out"
        assert problems == []


def test_the_token_is_asked_for_once(browser):
    with playing(list, token="s3cret") as (_, address), opened(browser, address) as (page, problems):
        for token in ("wrong", "s3cret"):
            expect(page.locator("#ask")).to_be_visible()
            page.fill("#token", token)
            page.keyboard.press("Enter")
        expect(page.locator("#picture")).to_be_visible()
        expect(page.locator("#ask")).to_be_hidden()
        assert all("401" in problem for problem in problems)


def test_a_run_that_ended_is_said(browser):
    with playing(list) as (_, address):
        manager = opened(browser, address)
        page, _ = manager.__enter__()
        expect(page.locator("#picture")).to_be_visible()
    expect(page.locator("#problem")).to_contain_text("not up to date")
    expect(page.locator("#light")).to_have_text("Not connected")
    page.close()
