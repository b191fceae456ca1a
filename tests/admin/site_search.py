"""Searches the built documentation in a real Chromium, in the environment of `install.py`.

    site_search.py URL FOLDER WORD...

Prints the titles and addresses of the first results for each word as JSON; a picture of the first page goes to FOLDER.
"""
# ruff: noqa: T201 - what was seen is printed

import json
import sys
from pathlib import Path

from chromium import chromium
from playwright.sync_api import sync_playwright


def main(url, folder, *words):
    found, foreign = {}, []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.on(
            "request", lambda each: None if each.url.startswith((url, "data:", "blob:")) else foreign.append(each.url)
        )
        page.goto(f"{url}/index.html")
        page.screenshot(path=str(Path(folder) / "site.png"))
        for word in words:
            page.goto("about:blank")
            page.goto(f"{url}/index.html?q={word}")
            page.wait_for_selector(".md-search-result__item a")
            links = page.locator(".md-search-result__item a.md-search-result__link")
            found[word] = [
                [link.locator("h1, h2").first.inner_text(), link.get_attribute("href")] for link in links.all()[:6]
            ]
        browser.close()
    print(json.dumps({"found": found, "foreign": foreign}))


if __name__ == "__main__":
    main(*sys.argv[1:])
