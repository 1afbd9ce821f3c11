"""The page in a real browser: draw a graph, think, see the right answer; nothing on the console."""

import itertools
import shutil
from contextlib import contextmanager

import pytest
from playwright.sync_api import expect, sync_playwright
from test_serve import running, untrained

from deepen.service import open_models

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="module")
def address():
    with running([*open_models(["graph"], slots=8, most_waiting=256), untrained("logic")]) as (host, port):
        yield f"http://{host}:{port}"


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield browser
        browser.close()


@contextmanager
def opened(browser, address, **context):
    """The page, ready; what it writes to the console fails the test."""
    page = browser.new_context(**context).new_page()
    complaints = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "request",
        lambda request: complaints.append(request.url) if not request.url.startswith(address) else None,
    )
    page.goto(address)
    page.wait_for_selector("body:not(.starting)")
    yield page
    assert complaints == []
    page.context.close()


def verdict(page):
    """Yes or no and whether that is right, once it is there; within a second, as promised (several here)."""
    shown = page.get_by_test_id("verdict")
    page.wait_for_function("() => document.querySelector('#verdict').dataset.label", timeout=10_000)
    return shown.get_attribute("data-label"), shown.get_attribute("data-right")


def test_draw_a_graph_with_the_mouse_and_think(browser, address):
    with opened(browser, address, viewport={"width": 1280, "height": 800}) as page:
        page.locator("#graph-clear").click()
        box = page.get_by_test_id("graph-canvas").bounding_box()
        places = [(box["x"] + x * box["width"], box["y"] + 0.5 * box["height"]) for x in (0.2, 0.5, 0.8)]
        for x, y in places:
            page.mouse.click(x, y)
        for (x, y), (to_x, to_y) in itertools.pairwise(places):
            page.mouse.move(x, y)
            page.mouse.down()
            page.mouse.move(to_x, to_y, steps=5)
            page.mouse.up()
        names = page.get_by_test_id("graph-source").locator("option").all_text_contents()
        page.get_by_test_id("graph-source").select_option(names[0])
        page.get_by_test_id("graph-target").select_option(names[-1])
        for steps, expected in ((1, ("no", "false")), (2, ("yes", "true"))):
            page.get_by_test_id("steps").fill(str(steps))
            page.get_by_test_id("think").click()
            assert verdict(page) == expected


@pytest.mark.parametrize(("hops", "steps", "label"), [(7, 6, "no"), (7, 7, "yes"), (40, 40, "yes")])
def test_paste_edges_one_step_too_few_and_enough(browser, address, hops, steps, label):
    with opened(browser, address, reduced_motion="reduce") as page:
        edges = "\n".join(f"n{k} n{k + 1}" for k in range(hops))
        page.get_by_test_id("graph-edges").fill(edges)
        page.get_by_test_id("graph-edges").blur()
        page.get_by_test_id("graph-source").select_option("n0")
        page.get_by_test_id("graph-target").select_option(f"n{hops}")
        page.get_by_test_id("steps").fill(str(steps))
        page.get_by_test_id("think").click()
        assert verdict(page) == (label, "true" if label == "yes" else "false")


def test_a_model_of_all_tasks_thinks_under_every_tab(browser):
    with (
        running([untrained("all"), untrained("logic")]) as (host, port),
        opened(browser, f"http://{host}:{port}", reduced_motion="reduce") as page,
    ):
        for task, names in (("graph", ["all"]), ("logic", ["logic", "all"]), ("family", ["all"])):
            page.get_by_test_id(f"tab-{task}").click()
            assert page.get_by_test_id("model").locator("option").all_text_contents() == names
            page.get_by_test_id("think").click()
            assert verdict(page)[0] in ("yes", "no")


def test_other_tabs_by_keyboard_and_on_a_phone(browser, address):
    phone = {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"}
    with opened(browser, address, **phone) as page:
        page.get_by_test_id("tab-graph").focus()
        page.keyboard.press("ArrowRight")
        expect(page.get_by_test_id("tab-logic")).to_be_focused()
        page.get_by_test_id("logic-expression").fill("!((T&F)|(!(T|F)))")
        page.get_by_test_id("steps").fill("5")
        page.get_by_test_id("think").click()
        assert verdict(page)[0] in ("yes", "no")
        page.get_by_test_id("tab-family").click()
        expect(page.locator("#panel-family")).to_contain_text("deepen serve --model")
        page.get_by_test_id("tab-frontier").click()
        page.locator('.cell[data-cell="40 40"]').first.wait_for()
        wide = page.evaluate("() => document.documentElement.scrollWidth")
        assert wide <= 390, "no scrolling sideways"
