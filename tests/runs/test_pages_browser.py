"""The pages in a real browser: they load alone, can be used, and show our numbers.

Chromium and its driver are Debian's packages `chromium`, `chromium-driver`; where one
of them, or selenium, is missing, these tests say so and skip.
"""

import json
import shutil

import jax
import numpy as np
import pytest
from test_pages import KEY, ROUND, built, shares, written

import afga_jax
from afga_jax.runs import record
from afga_jax.runs.pages import run_report

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is missing")
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")
pytestmark = [
    pytest.mark.skipif(
        not (CHROMIUM and DRIVER), reason="chromium or chromedriver is missing"
    ),
    pytest.mark.xdist_group("browser"),
]

# Quotes, an element, a handler, letters of other scripts, and a line separator.
HOSTILE = "\"'<script>hacked=1</script><img src=x onerror=hacked=1>\u202e名\u2028&lt;"


@pytest.fixture(scope="module")
def browser():
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    # Without a sandbox of its own: in a container the user may be root.
    for word in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(word)
    options.set_capability(
        "goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"}
    )
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    driver.set_script_timeout(30)
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def algorithm():
    # One sampled client of a cluster uploads: some gradients do not reach it.
    return built("cafga", 20, num_clusters=2, active=4)


@pytest.fixture(scope="module")
def view(algorithm):
    return afga_jax.runs.pages.explorer.look(algorithm, KEY, ROUND)


@pytest.fixture(scope="module")
def explorer_file(algorithm, tmp_path_factory):
    inputs, labels = np.zeros((40, 2), np.float32), np.arange(40) % 3
    dealt = np.arange(40).reshape(20, 2)
    data = afga_jax.data.from_arrays(inputs, labels, list(dealt), batch_size=1)
    shown = afga_jax.explore(
        algorithm,
        key=KEY,
        round=ROUND,
        data=data,
        name=HOSTILE,
        label_names=(HOSTILE, "b", "c"),
        measured={"round": [1, 2, 3], "consensus": [0.5, 0.25, 0.125]},
    )
    return shown.save(tmp_path_factory.mktemp("explorer") / "page.html")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs") / HOSTILE.replace("/", "")
    return [written(root / algo, algo=algo) for algo in ("fedavg", "afga")]


@pytest.fixture(scope="module")
def report_file(folders, tmp_path_factory):
    runs = [record.read(folder) for folder in folders]
    shown = run_report.report(runs)
    return shown.save(tmp_path_factory.mktemp("report") / "page.html")


def opened(browser, path, width=1200, dark=False):
    """Loads a page; its errors and the addresses that it asked for."""
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    for kind in ("browser", "performance"):
        browser.get_log(kind)  # what an earlier page left
    browser.get(path.as_uri())
    events = [json.loads(entry["message"]) for entry in browser.get_log("performance")]
    events = [event["message"] for event in events]
    asked = [
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    ]
    return browser.get_log("browser"), asked


def text(browser, name):
    return browser.find_element("id", name).text


def go_to(browser, moment):
    browser.execute_script(
        "const slider = document.getElementById('moment'); slider.value = arguments[0];"
        "slider.dispatchEvent(new Event('input'))",
        moment,
    )


@pytest.mark.parametrize("kind", ["explorer", "report"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_page_loads_alone_and_without_errors(kind, dark, browser, request):
    path = request.getfixturevalue(f"{kind}_file")
    errors, asked = opened(browser, path, dark=dark)
    assert errors == []
    assert {url for url in asked if not url.startswith("data:")} == {path.as_uri()}
    ground = browser.execute_script(
        "return getComputedStyle(document.body).backgroundColor"
    )
    brightness = int(ground.split("(")[1].split(",")[0])
    assert (brightness < 60) is dark


@pytest.mark.parametrize("kind", ["explorer", "report"])
def test_a_phone_shows_all_of_its_width(kind, browser, request):
    opened(browser, request.getfixturevalue(f"{kind}_file"), width=360)
    wide = browser.execute_script("return document.documentElement.scrollWidth")
    assert wide <= 360


@pytest.mark.parametrize("kind", ["explorer", "report"])
def test_hostile_names_are_text(kind, browser, folders, request):
    opened(browser, request.getfixturevalue(f"{kind}_file"))
    assert browser.execute_script("return typeof hacked") == "undefined"
    assert not browser.find_elements("css selector", "img")
    said = browser.execute_script("return document.body.textContent")
    assert (HOSTILE if kind == "explorer" else str(folders[0])) in said
    if kind == "explorer":
        assert browser.title.startswith("\"'<script>")


def test_the_slider_changes_what_is_drawn(browser, explorer_file, view):
    opened(browser, explorer_file)
    picture = "return document.getElementById(arguments[0]).toDataURL()"
    before = [browser.execute_script(picture, name) for name in ("graph", "plane")]
    assert text(browser, "when") == "step 1 of 4"
    # By the keyboard, as anybody can.
    browser.find_element("id", "moment").send_keys(Keys.ARROW_RIGHT)
    assert text(browser, "when") == "step 2 of 4"
    after = [browser.execute_script(picture, name) for name in ("graph", "plane")]
    assert all(one != other for one, other in zip(before, after, strict=True))
    go_to(browser, 5)
    assert text(browser, "when") == "upload"
    assert text(browser, "said").startswith("4 clients upload")
    sent = view.ledger[-1]
    between = sent["gossip_messages"] + sent["broadcasts"]
    assert f"{between:,} messages" in text(browser, "ledger")


def test_it_plays_and_pauses(browser, explorer_file):
    opened(browser, explorer_file)
    play = browser.find_element("id", "play")
    play.click()
    assert play.text == "Pause"
    script = """
      const done = arguments[0], when = document.getElementById('when');
      const tell = () => done(when.textContent);
      new MutationObserver(tell).observe(when, {childList: true});
    """
    assert browser.execute_async_script(script) == "step 2 of 4"
    play.click()
    assert play.text == "Play"


def test_every_gradient_says_its_weight_or_that_it_is_lost(
    browser, explorer_file, view
):
    opened(browser, explorer_file)
    (cycle,) = view.cycles
    lost = [
        (step, at)
        for step, row in enumerate(cycle.needed)
        for at, needed in enumerate(row)
        if not needed
    ]
    assert lost
    assert lost != [
        (s, a) for s, row in enumerate(cycle.needed) for a in range(len(row))
    ]
    for step, clients in enumerate(cycle.active):
        go_to(browser, step + 1)
        buttons = browser.find_elements("css selector", "#gradients button")
        assert len(buttons) == len(clients)
        for at, button in enumerate(buttons):
            browser.execute_script("arguments[0].focus()", button)
            said = text(browser, "gradient")
            assert said.startswith(
                f"The gradient of client {clients[at]} at step {step + 1}"
            )
            if (step, at) in lost:
                assert "is lost: it reaches nobody who uploads" in said
            else:
                weight = float(said.split("with weight ")[1].split(",")[0])
                # Four digits are shown.
                assert weight == pytest.approx(cycle.weight[step][at], rel=5e-4)
            assert f"it is part of {cycle.reaches[step][at]} model" in said


def test_hovering_a_lost_gradient_says_so(browser, explorer_file, view):
    opened(browser, explorer_file)
    (cycle,) = view.cycles
    step, at = next(
        (step, at)
        for step, row in enumerate(cycle.needed)
        for at, needed in enumerate(row)
        if not needed
    )
    script = """
      const canvas = document.getElementById('plane');
      canvas.scrollIntoView({block: 'center'});
      const box = canvas.getBoundingClientRect(), [step, client] = arguments;
      return [planeX(step + 1, box.width) - box.width / 2,
              planeY(client, box.height) - box.height / 2];
    """
    x, y = browser.execute_script(script, step, cycle.active[step][at])
    canvas = browser.find_element("id", "plane")
    pointer = ActionChains(browser)
    pointer.move_to_element_with_offset(canvas, round(x), round(y)).perform()
    said = text(browser, "gradient")
    assert said.startswith(f"The gradient of client {cycle.active[step][at]} at")
    assert "is lost: it reaches nobody who uploads" in said
    # A click keeps it, Escape lets go.
    pointer.click().perform()
    assert browser.find_element("id", "release").is_displayed()
    pointer.send_keys(Keys.ESCAPE).perform()
    assert not browser.find_element("id", "release").is_displayed()


def test_shares_on_the_way_are_powers_of_the_mixing(browser, explorer_file, algorithm):
    opened(browser, explorer_file)
    plan = jax.tree.map(np.asarray, algorithm.plan(KEY, ROUND))
    after, active, first = shares(algorithm, plan, 0)
    for step, row in enumerate(active):
        for at in range(len(row)):
            script = "return explorer.sharesOf(arguments[0]).map((x) => [...x])"
            one = {"cycle": 0, "step": step, "at": at}
            shown = browser.execute_script(script, one)
            wanted = [share[:, first[step] + at] for share in after[step:]]
            # The page has W in units of 1e-7.
            np.testing.assert_allclose(shown, wanted, atol=1e-6)


def test_colours_and_charts_of_the_explorer(browser, explorer_file):
    opened(browser, explorer_file)
    picture = "return document.getElementById('graph').toDataURL()"
    pictures = {browser.execute_script(picture)}
    for option in browser.find_elements("css selector", "#colour option")[1:]:
        option.click()
        pictures.add(browser.execute_script(picture))
    assert len(pictures) == 3
    charts = browser.find_elements("css selector", "[data-chart]")
    names = [chart.get_attribute("data-chart") for chart in charts]
    assert names == ["weights", "distance", "measured"]


def test_values_of_curves_are_those_of_the_metrics(browser, report_file, folders):
    opened(browser, report_file)
    chart = browser.find_element("css selector", '[data-chart="curves"]')
    browser.execute_script("arguments[0].focus()", chart)
    for round in (2, 4, 6):
        ActionChains(browser).send_keys(Keys.ARROW_RIGHT).perform()
        said = browser.find_element("css selector", "#chart .tip").text
        assert said.startswith(f"round {round} ")
        for folder in folders:
            rows = [r for r in record.read(folder).metrics if r["round"] == round]
            percents = [100 * row["test_accuracy"] for row in rows]
            mean, deviation = np.mean(percents), np.std(percents, ddof=1)
            assert f"{folder.name} {mean:.4g} % ± {deviation:.4g} %" in said


def test_choices_of_metric_and_axis_stay_in_the_address(browser, report_file, folders):
    opened(browser, report_file)
    for name, value in (("metric", "test_loss"), ("axis", "bytes_total")):
        css = f"#{name} option[value={value}]"
        browser.find_element("css selector", css).click()
    browser.refresh()
    chart = browser.find_element("css selector", '[data-chart="curves"]')
    browser.execute_script("arguments[0].focus()", chart)
    ActionChains(browser).send_keys(Keys.ARROW_RIGHT).perform()
    said = browser.find_element("css selector", "#chart .tip").text
    (first,) = {r["bytes_total"] for r in record.read(folders[0]).metrics[:1]}
    assert said.startswith(f"bytes sent {first // 1000}\u202fkB")


def test_the_legend_switches_a_curve(browser, report_file):
    opened(browser, report_file)
    drawn = lambda: [  # noqa: E731
        path.get_attribute("data-curve")
        for path in browser.find_elements("css selector", "#chart [data-curve]")
    ]
    assert drawn() == ["fedavg", "afga"]
    first = browser.find_element("css selector", "#legend button")
    first.click()
    assert (drawn(), first.get_attribute("aria-pressed")) == (["afga"], "false")
    first.click()
    assert drawn() == ["fedavg", "afga"]


def test_tables_of_the_report(browser, report_file):
    opened(browser, report_file)
    cells = lambda css: [  # noqa: E731
        [cell.text for cell in row.find_elements("css selector", "td")]
        for row in browser.find_elements("css selector", f"{css} tbody tr")
    ]
    assert [row[0] for row in cells("#comparison")] == ["fedavg …", "afga …"]
    assert cells("#differs")[0] == ["algo", "fedavg", "afga"]
    assert cells("#costs-table")[1][:4] == ["afga", "6", "96", "24"]
    assert "python -m experiments.digits --algo=afga" in text(browser, "commands")
