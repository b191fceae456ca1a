"""Looks at the dashboard in a real Chromium, in the environment of `install.py`.

    browser_scenes.py URL KEY SCENE [FOLDER]

A scene is a way through the pages; what was seen on it is printed as JSON and judged by test_browser.py. Pictures go
into FOLDER, for people.
"""
# ruff: noqa: T201 - what was seen is printed

import json
import sys
from pathlib import Path

from chromium import chromium
from playwright.sync_api import sync_playwright

PAGES = {
    "overview": "#/",
    "usage": "#/usage?by=model",
    "compare": "#/compare",
    "requests": "#/requests",
    "conversations": "#/conversations",
    "policies": "#/policies/default",
    "teams": "#/teams",
    "events": "#/events?least=info",
    "search": "#/search?text=a",
}
WATCH = """
window.hit = 0;
window.alert = window.confirm = window.prompt = () => { window.hit += 1; };
"""


class PageObserver:
    """One page, and what it did that it should not have."""

    def __init__(self, browser, url, folder="", **manner):
        self.url, self.folder = url, folder
        manner = {"viewport": {"width": 1280, "height": 900}, **manner}
        self.page = browser.new_context(reduced_motion="reduce", **manner).new_page()
        self.foreign, self.wrong = [], []
        self.page.add_init_script(WATCH)
        self.page.on("response", self._record_failed_file)
        self.page.on("request", lambda each: None if each.url.startswith(url) else self.foreign.append(each.url))
        self.page.on("pageerror", lambda fault: self.wrong.append(str(fault)))
        self.page.on("console", self._record_console_error)

    def _record_console_error(self, message):
        """A refusal is an answer like any other; a script that was stopped or a file that is not there is none."""
        if "Password forms" in message.text or (message.type == "error" and "with a status of 4" not in message.text):
            self.wrong.append(message.text)

    def _record_failed_file(self, response):
        if response.status >= 400 and "/static/" in response.url:
            self.wrong.append(response.url)

    def log_in(self, key):
        self.page.goto(f"{self.url}/admin/")
        self.page.fill("#key", key)
        self.page.click("button")
        self.page.wait_for_selector(".bar")

    def go(self, place):
        self.page.goto(f"{self.url}/admin/{place}")
        self.page.wait_for_selector("main h1, main .empty")
        self.look_for_gaps()

    def look_for_gaps(self):
        self.page.wait_for_timeout(300)
        text = self.page.inner_text("main")
        self.wrong.extend(f"{word} on {self.page.url}" for word in ("NaN", "undefined") if word in text)

    def open_first(self):
        self.go("#/conversations")
        self.page.click("a.titled >> nth=0")
        self.page.wait_for_selector(".strip .block")
        self.look_for_gaps()

    def open_cleared(self):
        """Open a result that was cleared: of the newest request that has one."""
        cleared = self.page.locator(".strip .block.cleared[title*=clear_results]")
        while not cleared.count():
            self.slide_back()
        cleared.last.click()
        self.page.wait_for_selector(".beside .diff.new")

    def slide_back(self):
        """Choose the request before, and return the words at the slider, before and after."""
        before = self.page.inner_text("output")
        self.page.focus("input[type=range]")
        self.page.keyboard.press("ArrowLeft")
        self.page.wait_for_selector(f"output:not(:text-is('{before}'))")
        return [before, self.page.inner_text("output")]

    def picture(self, name):
        if self.folder:
            self.page.screenshot(path=str(Path(self.folder) / f"{name}.png"), full_page=True)

    @property
    def findings(self):
        return {"foreign": self.foreign, "wrong": self.wrong, "hit": self.page.evaluate("window.hit")}


def scene(way):
    """A scene in one window of usual size, after the log in."""

    def run(browser, url, key, folder):
        observer = PageObserver(browser, url, folder)
        observer.log_in(key)
        return {**way(observer), **observer.findings}

    return run


def tour(browser, url, key, folder):
    """Every page, in light and dark and on a phone."""
    found = {}
    for scheme, wide in (("light", 1280), ("dark", 1280), ("light", 390)):
        name = "phone" if wide < 1000 else scheme
        observer = PageObserver(browser, url, folder, color_scheme=scheme, viewport={"width": wide, "height": 900})
        observer.page.goto(f"{url}/admin/")
        observer.picture(f"{name}-login")
        observer.log_in(key)
        widths = {}
        for page, place in PAGES.items():
            observer.go(place)
            observer.picture(f"{name}-{page}")
            widths[page] = observer.page.evaluate("document.documentElement.scrollWidth")
        observer.open_first()
        observer.page.click(".strip .block >> nth=1")
        observer.page.wait_for_selector(".beside")
        observer.picture(f"{name}-conversation")
        widths["conversation"] = observer.page.evaluate("document.documentElement.scrollWidth")
        paper = observer.page.evaluate("getComputedStyle(document.body).backgroundColor")
        found[name] = {"widths": widths, "paper": paper, **observer.findings}
    return found


@scene
def cut_tables(observer):
    """Every page in windows of many widths, and the tables whose right end would have to be scrolled to."""
    cut = {}
    for page, place in PAGES.items():
        observer.go(place)
        for wide in (1920, 1440, 1280, 1100, 1024, 900, 768, 721, 600, 390):
            observer.page.set_viewport_size({"width": wide, "height": 900})
            hidden = "tables => tables.map(each => each.scrollWidth - each.clientWidth)"
            for pixels in observer.page.eval_on_selector_all(".scroll", hidden):
                if pixels > 0:
                    cut[f"{page} at {wide}"] = pixels
    return {"cut": cut}


@scene
def hostile(observer):
    """Every page that shows text of unknown authors."""
    for place in (*PAGES.values(), "#/search?text=%3Cimg", "#/policies/%3Cimg%20src=x%20onerror=alert(1)%3E"):
        observer.go(place)
    observer.page.set_viewport_size({"width": 390, "height": 900})
    widths = set()
    for place in PAGES.values():
        observer.go(place)
        widths.add(observer.page.evaluate("document.documentElement.scrollWidth"))
    observer.open_first()
    shown = []
    for number in range(observer.page.locator(".strip .block").count()):
        observer.page.click(f".strip .block >> nth={number}")
        observer.page.wait_for_selector(f".pane h3:has-text('Message {number + 1}:')")
        shown.append(observer.page.inner_text(".pane .beside"))
    observer.picture("hostile")
    strange = "main img, main script, main iframe, main svg [onload], main b[onclick], main a[href^=javascript]"
    elements = observer.page.locator(strange).count()
    return {
        "shown": shown,
        "elements": elements,
        "widths": sorted(widths),
        "title": observer.page.inner_text("h1"),
    }


def keyboard(browser, url, key, folder):
    """In, to a conversation, to a message and out again, without a mouse."""
    observer = PageObserver(browser, url, folder)
    page = observer.page
    page.goto(f"{url}/admin/")
    page.wait_for_function("document.activeElement.id === 'key'")
    page.keyboard.type(key)
    page.keyboard.press("Enter")
    page.wait_for_selector(".bar")
    page.wait_for_selector("main h1")
    page.keyboard.press("Tab")
    first = page.evaluate("document.activeElement.innerText")
    observer.go("#/conversations")
    page.focus("a.titled >> nth=0")
    page.keyboard.press("Enter")
    page.wait_for_selector(".strip .block")
    main = page.evaluate("document.activeElement.id")
    stops = page.locator(".strip [tabindex='0']").count()
    page.focus(".strip [tabindex='0']")
    for press in ("ArrowRight", "ArrowRight", "End", "Home", "ArrowRight"):
        page.keyboard.press(press)
    second = page.evaluate("document.activeElement.getAttribute('aria-label')")
    page.keyboard.press("Enter")
    page.wait_for_selector(".pane h3")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    return {
        "first": first,
        "main": main,
        "stops": stops,
        "second": second,
        "outline": outline,
        "slid": observer.slide_back(),
        **observer.findings,
    }


@scene
def work(observer):
    """What operators do: a key and a switch."""
    page, seen = observer.page, {}
    observer.go("#/teams")
    page.fill("input[name=label]", "for <b>a test</b>")
    page.click("button:text-is('Create a key')")
    seen["key"] = page.inner_text(".fresh pre")
    page.click("button:text-is('Done')")
    page.select_option("select[aria-label='Compaction for All clients']", "bypass")
    page.wait_for_selector("#banner .warn")
    seen["banner"] = page.inner_text("#banner")
    observer.go("#/")
    page.wait_for_selector(".events li:has-text('compaction limited')")
    observer.go("#/teams")
    page.select_option("select[aria-label='Compaction for All clients']", "on")
    page.wait_for_selector("#banner .warn", state="detached")
    observer.go("#/")
    page.wait_for_selector(".events li:has-text('lifted since')")
    observer.go("#/nowhere")
    seen["lost"] = page.inner_text("h1")
    page.click("button:text-is('Log out')")
    page.wait_for_selector("#key")
    return seen


def single_sign_on(browser, url, key, folder):
    """A log in at an identity proxy, and a switch. The admin key stays where the browser cannot see it."""
    observer = PageObserver(browser, url, folder)
    page, seen = observer.page, {}
    page.goto(f"{url}/admin/")
    page.fill("#who", "ann@example.com")
    page.click("button")
    page.wait_for_selector(".bar")
    observer.go("#/teams")
    page.select_option("select[aria-label='Compaction for All clients']", "bypass")
    page.wait_for_selector("#banner .warn")
    seen["banner"] = page.inner_text("#banner")
    observer.go("#/events?least=info")
    seen["audit"] = page.inner_text("main")
    return {**seen, **observer.findings}


@scene
def outage(observer):
    """The proxy does not answer for a while: on a page, on a request that is chosen, on a message that is opened."""
    page, seen, api = observer.page, {}, "**/admin/api/**"
    observer.open_first()
    page.route(api, lambda route: route.abort())
    page.click(".strip .block >> nth=0")
    page.wait_for_selector(".pane .fault")
    page.focus("input[type=range]")
    page.keyboard.press("Home")
    page.wait_for_selector("main > .page > .fault")
    seen["strip"] = page.locator(".strip .block").count()
    page.goto(f"{observer.url}/admin/#/events")
    page.wait_for_selector(".gone .fault")
    seen["down"] = page.inner_text("main")
    observer.picture("down")
    page.unroute(api)
    page.wait_for_selector("main table", timeout=10_000)
    seen["left"] = page.locator("main .gone").count()
    observer.wrong = [each for each in observer.wrong if "ERR_FAILED" not in each]
    return seen


@scene
def ended_session(observer):
    """The session ends while a page is open that asks for three lists at once."""
    page, refused = observer.page, []
    observer.go("#/teams")
    page.on("response", lambda answer: refused.append(answer.url) if answer.status == 401 else None)
    page.context.clear_cookies()
    page.wait_for_selector("#key", timeout=20_000)
    return {"refused": [each.removeprefix(observer.url) for each in refused]}


@scene
def figures(observer):
    """Where the money goes, and a request that failed: from the chart to the row and to the request itself."""
    page, seen = observer.page, {}
    observer.go("#/usage?by=model&of=cost")
    seen["groups"] = page.locator("[aria-label='Usage in figures'] tbody tr").count()
    seen["bars"] = page.locator(".chart rect.g0").count()
    seen["lines"] = page.locator(".chart line.would").count()
    seen["columns"] = page.inner_text("[aria-label='Usage in figures'] thead").strip().split("\t")
    page.click("summary:text-is('What these mean')")
    seen["meant"] = page.locator(".meanings dt").all_inner_texts()
    observer.go("#/policies")
    seen["attachments"] = page.inner_text("[aria-label='Attachments'] tbody").split("\t")
    observer.go("#/requests?hours=168")
    page.select_option("select[name=kind]", "errors")
    page.wait_for_function("location.hash.includes('kind=errors')")
    page.wait_for_selector("tbody tr")
    seen["errors"] = page.locator("tbody .badge.warning, tbody .badge.error").count()
    seen["rows"] = page.locator("tbody tr").count()
    page.click("tbody a >> nth=0")
    page.wait_for_selector("h1 .badge")
    seen["request"] = page.inner_text("main")
    seen["foot"] = page.inner_text("#foot")
    return seen


@scene
def charts(observer):
    """Charts whose gains and losses differ in size, and the distances between the labels at their lines."""
    draw = """async ([low, top, height]) => {
        const { bars } = await import("/admin/static/charts.js");
        const rows = [low, top].map((amount) => ({ label: "", tick: null, values: [["gain", amount]] }));
        const chart = bars(rows, { height, told: "", written: String });
        document.querySelector("main").replaceChildren(chart);
        const boxes = [...chart.querySelectorAll(".tick")].map((label) => label.getBBox());
        return boxes.slice(1).map((box, place) => boxes[place].y - (box.y + box.height));
    }"""
    gaps = {}
    for wide in (1280, 390):
        observer.page.set_viewport_size({"width": wide, "height": 900})
        for low, top in ((0, 5), (-5, 0), (-5, 0.01), (-5, 0.7), (-5, 1), (-5, 4), (-0.7, 4), (-1, 5), (-0.01, 5)):
            gaps[f"{low} to {top} at {wide}"] = min(observer.page.evaluate(draw, [low, top, 130]))
    return {"gaps": gaps}


@scene
def many_groups(observer):
    """More sessions than a page lists."""
    page, seen = observer.page, {}
    observer.go("#/usage?by=session")
    rows = page.locator("[aria-label='Usage in figures'] tbody tr")
    seen["rows"] = rows.count()
    seen["others"], seen["all"] = rows.nth(seen["rows"] - 2).inner_text(), rows.nth(seen["rows"] - 1).inner_text()
    seen["page"] = page.inner_text("main")
    observer.picture("many-groups")
    return seen


@scene
def compared(observer):
    """Arms of several policies."""
    observer.go("#/compare")
    return {"names": observer.page.locator("main section > h2 > a").all_inner_texts()}


@scene
def fleet(observer):
    """Usage of several replicas, and a page of one of them."""
    page, seen = observer.page, {}
    observer.go("#/usage?by=team")
    rows = page.locator("[aria-label='Usage in figures'] tbody tr")
    seen["all"] = rows.nth(rows.count() - 1).inner_text()
    seen["usage"] = page.inner_text("main")
    observer.picture("fleet")
    observer.go("#/")
    seen["overview"] = page.inner_text("main")
    observer.go("#/conversations")
    page.wait_for_selector("main > .note")
    seen["conversations"] = page.inner_text("main")
    return seen


@scene
def messages(observer):
    """A shortened message: what was left out is marked, its address leads to it, and both views hold the same text."""
    page, seen = observer.page, {}
    observer.open_first()
    observer.open_cleared()
    seen["gone"] = page.locator(".beside .diff.gone").count()
    seen["heading"] = page.inner_text(".pane h3")
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_selector(".pane h3")
    seen["again"] = page.inner_text(".pane h3")
    page.click("input[value=changes]")
    page.wait_for_selector(".said.whole .diff.new")
    seen["new"] = page.inner_text(".said.whole .diff.new >> nth=0")
    return seen


def portraits(browser, url, key, folder):
    """Pictures for the documents: light, dark, and on a phone. The phone shows the changes in one column."""
    desktop, phone = {"width": 1020, "height": 700}, {"width": 390, "height": 780}
    for name, place, scheme, size in (
        ("usage", "#/usage?by=model", "light", desktop),
        ("usage-dark", "#/usage?by=model", "dark", desktop),
        ("requests", "#/requests", "light", desktop),
        ("conversation", "#/conversations", "light", desktop),
        ("conversation-phone", "#/conversations", "light", phone),
    ):
        observer = PageObserver(browser, url, color_scheme=scheme, viewport=size)
        observer.log_in(key)
        observer.go(place)
        if place == "#/conversations":
            observer.page.click("a.titled >> nth=1")
            observer.page.wait_for_selector(".strip .block")
            observer.open_cleared()
            observer.page.locator("section:has(.strip)").evaluate("part => scrollTo(0, part.offsetTop - 70)")
        observer.page.wait_for_timeout(300)
        observer.page.screenshot(path=str(Path(folder) / f"{name}.png"))
    return observer.findings


@scene
def finding(observer):
    """From words to the message that says them, and back through the requests without losing the slider."""
    page, seen = observer.page, {}
    observer.go("#/search?text=HB-20417")
    seen["found"] = page.inner_text(".hits li >> nth=0")
    page.click(".hits a >> nth=0")
    page.wait_for_selector(".pane .beside")
    seen["opened"] = page.inner_text(".pane .beside")
    for _ in range(2):
        observer.slide_back()
    seen["focused"] = page.evaluate("document.activeElement.type")
    return seen


@scene
def observe_mode(observer):
    """A policy that only observes: the line of what would have been, in both pictures, with its money."""
    page, seen = observer.page, {}
    observer.go("#/?hours=1")
    seen["tiles"], seen["lines"] = page.inner_text(".tiles"), page.locator("line.would").count()
    observer.picture("observed-overview")
    observer.go("#/conversations")
    seen["list"] = page.inner_text("main table")
    observer.open_first()
    observer.picture("observed-conversation")
    seen["facts"], seen["turn"] = page.inner_text(".facts"), page.inner_text(".turn")
    seen["requests"] = page.locator("line.would").count()
    seen["cleared"] = page.locator(".strip .block.cleared").count()
    return seen


@scene
def empty(observer):
    """A proxy by which nothing has come yet."""
    seen = {}
    for name in ("overview", "compare", "conversations", "teams", "events", "search"):
        observer.go(PAGES[name])
        observer.picture(f"empty-{name}")
        seen[name] = observer.page.inner_text("main")
    return seen


def main(url, key, scene_name, folder=""):
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        print(json.dumps(globals()[scene_name](browser, url, key, folder)))
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
