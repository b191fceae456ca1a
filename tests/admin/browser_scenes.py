"""Ways through the dashboard in a real Chromium, in the environment of `install.py`, and what must be seen on them.

    browser_scenes.py URL KEY SCENE FOLDER [VALUES]

A scene is a function; VALUES are its other arguments, as JSON. Pictures go into FOLDER, for people.
"""

import json
import re
import sys
from pathlib import Path

from chromium import chromium
from playwright.sync_api import expect, sync_playwright

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
SWITCH = "select[aria-label='Compaction for All clients']"
USAGE_ROWS = "[aria-label='Usage in figures'] tbody tr"


class Visit:
    """A browser, and the windows that a scene opens in it."""

    def __init__(self, browser, url, key, folder):
        self.browser, self.url, self.key, self.folder = browser, url, key, folder
        self.windows = []

    def open(self, **manner):
        self.windows.append(PageObserver(self, **manner))
        return self.windows[-1]

    def log_in(self, **manner):
        observer = self.open(**manner)
        observer.log_in()
        return observer


class PageObserver:
    """One page, and what it did that it should not have."""

    def __init__(self, visit, **manner):
        self.visit, self.url, self.folder = visit, visit.url, visit.folder
        manner = {"viewport": {"width": 1280, "height": 900}, **manner}
        self.page = visit.browser.new_context(reduced_motion="reduce", **manner).new_page()
        self.foreign, self.wrong = [], []
        self.page.add_init_script(WATCH)
        self.page.on("response", self._record_failed_file)
        self.page.on("request", lambda each: None if each.url.startswith(self.url) else self.foreign.append(each.url))
        self.page.on("pageerror", lambda fault: self.wrong.append(str(fault)))
        self.page.on("console", self._record_console_error)

    def _record_console_error(self, message):
        """A refusal is an answer like any other; a script that was stopped or a file that is not there is none."""
        if "Password forms" in message.text or (message.type == "error" and "with a status of 4" not in message.text):
            self.wrong.append(message.text)

    def _record_failed_file(self, response):
        if response.status >= 400 and "/static/" in response.url:
            self.wrong.append(response.url)

    def log_in(self):
        self.page.goto(f"{self.url}/admin/")
        self.page.fill("#key", self.visit.key)
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
        """Choose the request before, and wait until the words at the slider are other ones."""
        before = self.page.inner_text("output")
        self.page.focus("input[type=range]")
        self.page.keyboard.press("ArrowLeft")
        self.page.wait_for_selector(f"output:not(:text-is('{before}'))")

    def sees(self, *words, place="main"):
        for each in words:
            expect(self.page.locator(place)).to_contain_text(each)

    def picture(self, name):
        self.page.screenshot(path=str(Path(self.folder) / f"{name}.png"), full_page=True)

    @property
    def width(self):
        return self.page.evaluate("document.documentElement.scrollWidth")

    def is_harmless(self):
        """Nothing was asked of others, nothing went wrong, and no text was run as code."""
        assert (self.foreign, self.wrong, self.page.evaluate("window.hit")) == ([], [], 0), (self.foreign, self.wrong)


def every_page_fits_in_light_in_dark_and_on_a_phone(visit):
    papers = []
    for name, scheme, wide in (("light", "light", 1280), ("dark", "dark", 1280), ("phone", "light", 390)):
        observer = visit.open(color_scheme=scheme, viewport={"width": wide, "height": 900})
        observer.page.goto(f"{visit.url}/admin/")
        observer.picture(f"{name}-login")
        observer.log_in()
        for page, place in PAGES.items():
            observer.go(place)
            observer.picture(f"{name}-{page}")
            assert observer.width == wide, page
        observer.open_first()
        observer.page.click(".strip .block >> nth=1")
        observer.page.wait_for_selector(".beside")
        observer.picture(f"{name}-conversation")
        assert observer.width == wide
        papers.append(observer.page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert papers[0] != papers[1]


def no_table_is_cut_in_any_window(visit):
    """None has a right end that would have to be scrolled to."""
    observer, cut = visit.log_in(), {}
    for page, place in PAGES.items():
        observer.go(place)
        for wide in (1920, 1440, 1280, 1100, 1024, 900, 768, 721, 600, 390):
            observer.page.set_viewport_size({"width": wide, "height": 900})
            hidden = "tables => tables.map(each => each.scrollWidth - each.clientWidth)"
            for pixels in observer.page.eval_on_selector_all(".scroll", hidden):
                if pixels > 0:
                    cut[f"{page} at {wide}"] = pixels
    assert cut == {}, cut


def text_of_callers_is_shown_as_text_only(visit, markup):
    observer = visit.log_in()
    for place in (*PAGES.values(), "#/search?text=%3Cimg", "#/policies/%3Cimg%20src=x%20onerror=alert(1)%3E"):
        observer.go(place)
    observer.page.set_viewport_size({"width": 390, "height": 900})
    for place in PAGES.values():
        observer.go(place)
        assert observer.width == 390, place
    observer.open_first()
    shown = []
    for number in range(observer.page.locator(".strip .block").count()):
        observer.page.click(f".strip .block >> nth={number}")
        observer.page.wait_for_selector(f".pane h3:has-text('Message {number + 1}:')")
        shown.append(observer.page.inner_text(".pane .beside"))
    observer.picture("hostile")
    assert sum(markup in each for each in shown) > 8, shown
    observer.sees(markup.partition("<script>")[0], place="h1")
    strange = "main img, main script, main iframe, main svg [onload], main b[onclick], main a[href^=javascript]"
    expect(observer.page.locator(strange)).to_have_count(0)


def nothing_needs_a_mouse(visit):
    observer = visit.open()
    page = observer.page
    page.goto(f"{visit.url}/admin/")
    expect(page.locator("#key")).to_be_focused()
    page.keyboard.type(visit.key)
    page.keyboard.press("Enter")
    page.wait_for_selector(".bar")
    page.wait_for_selector("main h1")
    page.keyboard.press("Tab")
    expect(page.locator(":focus")).to_have_text("Skip to the page")
    observer.go("#/conversations")
    page.focus("a.titled >> nth=0")
    page.keyboard.press("Enter")
    page.wait_for_selector(".strip .block")
    expect(page.locator("#main")).to_be_focused()
    expect(page.locator(".strip [tabindex='0']")).to_have_count(1)
    page.focus(".strip [tabindex='0']")
    for press in ("ArrowRight", "ArrowRight", "End", "Home", "ArrowRight"):
        page.keyboard.press(press)
    expect(page.locator(":focus")).to_have_attribute("aria-label", re.compile("^Message 2,"))
    page.keyboard.press("Enter")
    page.wait_for_selector(".pane h3")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    observer.slide_back()


def operators_do_their_work_in_it(visit):
    """A key and a switch."""
    observer = visit.log_in()
    page = observer.page
    observer.go("#/teams")
    page.fill("input[name=label]", "for <b>a test</b>")
    page.click("button:text-is('Create a key')")
    expect(page.locator(".fresh pre")).to_have_text(re.compile("^cp-"))
    page.click("button:text-is('Done')")
    page.select_option(SWITCH, "bypass")
    observer.sees("Compaction for all clients: bypass", place="#banner .warn")
    observer.go("#/")
    page.wait_for_selector(".events li:has-text('compaction limited')")
    observer.go("#/teams")
    page.select_option(SWITCH, "on")
    page.wait_for_selector("#banner .warn", state="detached")
    observer.go("#/")
    page.wait_for_selector(".events li:has-text('lifted since')")
    observer.go("#/nowhere")
    expect(page.locator("h1")).to_have_text("Page not found")
    page.click("button:text-is('Log out')")
    page.wait_for_selector("#key")


def a_person_logs_in_and_turns_a_switch(visit):
    """At an identity proxy. The admin key stays where the browser cannot see it."""
    observer = visit.open()
    page = observer.page
    page.goto(f"{visit.url}/admin/")
    page.fill("#who", "ann@example.com")
    page.click("button")
    page.wait_for_selector(".bar")
    observer.go("#/teams")
    page.select_option(SWITCH, "bypass")
    observer.sees("Compaction for all clients: bypass", place="#banner .warn")
    observer.go("#/events?least=info")
    observer.sees("ann@example.com")


def a_page_says_that_the_proxy_does_not_answer_and_tries_again(visit):
    """On a page, on a request that is chosen, on a message that is opened."""
    observer, api = visit.log_in(), "**/admin/api/**"
    page = observer.page
    observer.open_first()
    page.route(api, lambda route: route.abort())
    page.click(".strip .block >> nth=0")
    page.wait_for_selector(".pane .fault")
    page.focus("input[type=range]")
    page.keyboard.press("Home")
    page.wait_for_selector("main > .page > .fault")
    expect(page.locator(".strip .block")).not_to_have_count(0)  # what was there stays
    page.goto(f"{observer.url}/admin/#/events")
    observer.sees("does not answer", place=".gone .fault")
    observer.picture("down")
    page.unroute(api)
    page.wait_for_selector("main table", timeout=10_000)
    expect(page.locator("main .gone")).to_have_count(0)
    observer.wrong = [each for each in observer.wrong if "ERR_FAILED" not in each]


def a_session_that_has_ended_leads_to_the_login_form_after_one_refusal(visit):
    """While a page is open that asks for three lists at once."""
    observer, refused = visit.log_in(), []
    page = observer.page
    observer.go("#/teams")
    page.on("response", lambda answer: refused.append(answer.url) if answer.status == 401 else None)
    page.context.clear_cookies()
    page.wait_for_selector("#key", timeout=20_000)
    assert refused == [f"{visit.url}/admin/api/switches", f"{visit.url}/admin/"], refused


def the_money_and_a_request_that_failed_are_found(visit):
    """From the chart to the row and to the request itself."""
    observer = visit.log_in()
    page = observer.page
    observer.go("#/usage?by=model&of=cost")
    expect(page.locator(USAGE_ROWS)).to_have_count(5)  # four models, and all
    assert min(page.locator(".chart rect.g0").count(), page.locator(".chart line.would").count()) > 10
    columns = page.inner_text("[aria-label='Usage in figures'] thead").strip().split("\t")
    assert "Spent on summaries" in columns, columns
    for row in (f"{USAGE_ROWS} >> nth=0", "[aria-label='Usage by month'] tbody tr >> nth=0"):
        assert page.inner_text(row).count("\N{EN DASH}") == 1, row  # what is not observed would save nothing
    page.click("summary:text-is('What these mean')")
    meant = page.locator(".meanings dt").all_inner_texts()
    assert {*columns} - {"Model", "Requests"} < {*meant}, (columns, meant)
    observer.go("#/policies")
    observer.sees("10 %", place="[aria-label='Attachments'] tbody")
    observer.go("#/requests?hours=168")
    page.select_option("select[name=kind]", "errors")
    page.wait_for_function("location.hash.includes('kind=errors')")
    page.wait_for_selector("tbody tr")
    errors = page.locator("tbody .badge.warning, tbody .badge.error").count()
    assert errors >= page.locator("tbody tr").count() > 3
    page.click("tbody a >> nth=0")
    page.wait_for_selector("h1 .badge")
    observer.sees("Added by the proxy")
    observer.sees("Times in", place="#foot")


def no_label_of_a_chart_lies_on_another(visit):
    """Not of charts whose gains and losses differ in size either."""
    observer = visit.log_in()
    draw = """async ([low, top, height]) => {
        const { bars } = await import("/admin/static/charts.js");
        const rows = [low, top].map((amount) => ({ label: "", tick: null, values: [["gain", amount]] }));
        const chart = bars(rows, { height, told: "", written: String });
        document.querySelector("main").replaceChildren(chart);
        const boxes = [...chart.querySelectorAll(".tick")].map((label) => label.getBBox());
        return boxes.slice(1).map((box, place) => boxes[place].y - (box.y + box.height));
    }"""
    for wide in (1280, 390):
        observer.page.set_viewport_size({"width": wide, "height": 900})
        for low, top in ((0, 5), (-5, 0), (-5, 0.01), (-5, 0.7), (-5, 1), (-5, 4), (-0.7, 4), (-1, 5), (-0.01, 5)):
            gaps = observer.page.evaluate(draw, [low, top, 130])
            assert min(gaps) > 0, (wide, low, top, gaps)


def of_many_sessions_the_page_lists_some_and_sums_up_the_others(visit):
    observer = visit.log_in()
    observer.go("#/usage?by=session")
    rows = observer.page.locator(USAGE_ROWS)
    expect(rows).to_have_count(202)
    assert rows.nth(200).inner_text().split("\t")[:2] == ["1,050 others", "1,050"]
    assert rows.nth(201).inner_text().split("\t")[:2] == ["All", "1,250"]
    observer.sees("Listed are the 200 of 1,250")
    observer.picture("many-groups")


def arms_stand_below_the_name_of_their_policy(visit):
    observer = visit.log_in()
    observer.go("#/compare")
    expect(observer.page.locator("main section > h2 > a")).to_have_text(["brave", "patient"])


def usage_is_of_all_replicas_and_conversations_of_one(visit, requests):
    observer = visit.log_in()
    observer.go("#/usage?by=team")
    expect(observer.page.locator(USAGE_ROWS).last).to_contain_text(requests)
    observer.sees("Of 2 replicas", "CSV of 13 months")
    observer.picture("fleet")
    observer.go("#/conversations")
    observer.sees("Of this replica only", place="main > .note")


def a_shortened_message_shows_what_was_left_out_and_has_an_address(visit):
    """Both views hold the same text."""
    observer = visit.log_in()
    page = observer.page
    observer.open_first()
    observer.open_cleared()
    expect(page.locator(".beside .diff.gone")).not_to_have_count(0)
    heading, address = page.inner_text(".pane h3"), page.url
    page.goto("about:blank")
    page.goto(address)
    expect(page.locator(".pane h3")).to_have_text(heading)
    page.click("input[value=changes]")
    expect(page.locator(".said.whole .diff.new").first).to_have_text(re.compile(r"^[+ ]*\["))


def portraits(visit):
    """Pictures for the documents: light, dark, and on a phone. The phone shows the changes in one column."""
    desktop, phone = {"width": 1020, "height": 700}, {"width": 390, "height": 780}
    for name, place, scheme, size in (
        ("usage", "#/usage?by=model", "light", desktop),
        ("usage-dark", "#/usage?by=model", "dark", desktop),
        ("requests", "#/requests", "light", desktop),
        ("conversation", "#/conversations", "light", desktop),
        ("conversation-phone", "#/conversations", "light", phone),
    ):
        observer = visit.log_in(color_scheme=scheme, viewport=size)
        observer.go(place)
        if place == "#/conversations":
            observer.page.click("a.titled >> nth=1")
            observer.page.wait_for_selector(".strip .block")
            observer.open_cleared()
            observer.page.locator("section:has(.strip)").evaluate("part => scrollTo(0, part.offsetTop - 70)")
        observer.page.wait_for_timeout(300)
        observer.page.screenshot(path=str(Path(visit.folder) / f"{name}.png"))


def a_match_links_to_its_message(visit):
    """And the slider is not lost on the way back through the requests."""
    observer = visit.log_in()
    page = observer.page
    observer.go("#/search?text=HB-20417")
    observer.sees("Customers complain", place=".hits li >> nth=0")
    page.click(".hits a >> nth=0")
    observer.sees("HB-20417", place=".pane .beside")
    for _ in range(2):
        observer.slide_back()
    expect(page.locator("input[type=range]")).to_be_focused()


def the_pages_draw_what_would_be_as_a_line(visit):
    """Under a policy that only observes: in both pictures, with its money."""
    observer = visit.log_in()
    page, lines = observer.page, observer.page.locator("line.would")
    observer.go("#/?hours=1")
    observer.sees("more saved, before the cost of summaries", place=".tiles")
    expect(lines).not_to_have_count(0)
    observer.picture("observed-overview")
    observer.go("#/conversations")
    observer.sees("would be", place="main table")
    observer.open_first()
    observer.picture("observed-conversation")
    observer.sees("would be", place=".facts")
    observer.sees("would save $", place=".turn")
    assert lines.count() >= 10
    assert page.locator(".strip .block.cleared").count() >= 5


def where_there_is_nothing_yet_it_says_what_to_do(visit):
    observer = visit.log_in()
    for name, words in (
        ("overview", "OPENAI_BASE_URL"),
        ("compare", "holdout"),
        ("conversations", "25,000 tokens"),
        ("teams", "teams:"),
        ("events", ""),
        ("search", "No results"),
    ):
        observer.go(PAGES[name])
        observer.picture(f"empty-{name}")
        observer.sees(words)


def main(url, key, scene, folder, values="{}"):
    expect.set_options(timeout=20_000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        visit = Visit(browser, url, key, folder)
        globals()[scene](visit, **json.loads(values))
        for observer in visit.windows:
            observer.is_harmless()
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
