"""A real Chromium on the page of an admin listener, which notes what the page must not do."""

import contextlib
import json
import os
import pathlib
import urllib.error
import urllib.request

from playwright.sync_api import expect, sync_playwright

# Debian's; Playwright brings none here.
CHROMIUM = "/usr/bin/chromium"
# A page shows what is new within two seconds; a busy machine may take longer to draw it.
SOON_MS = 15_000


class Page:
    """A page with the faults that it made: errors of scripts, breaches of its policy, requests to elsewhere."""

    def __init__(self, page, origin):
        self.page = page
        self.faults = []
        self.origin = origin
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("console", self._said)
        page.on("request", self._asked)
        page.on("dialog", lambda dialog: self._dialog(dialog))
        self.dialogs = []

    def _said(self, message):
        # A refusal that the page shows is one line of the console, too.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.faults.append(f"console: {message.text}")

    def _asked(self, request):
        if not request.url.startswith(self.origin + "/") and not request.url.startswith("data:"):
            self.faults.append(f"asks {request.url}")

    def _dialog(self, dialog):
        self.dialogs.append(dialog.message)
        dialog.accept()

    def open(self):
        self.page.goto(self.origin + "/")
        return self

    def at(self, selector):
        return self.page.locator(selector)

    def is_live(self):
        expect(self.at("#connection")).to_have_text("live", timeout=SOON_MS)
        # The first event has no rates.
        expect(self.at("#now dd").first).not_to_have_text("…", timeout=SOON_MS)

    def sign_in(self, token):
        self.page.get_by_label("Bearer token").fill(token)
        self.page.get_by_role("button", name="Show the gateway").click()

    def has_no_faults(self):
        assert self.faults == [], self.faults


@contextlib.contextmanager
def chromium():
    with sync_playwright() as playwright:
        # Tests run as root in a container, where Chromium's own sandbox cannot.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def opened(browser, origin, **how):
    """A page in a context of its own: another context has none of its storage."""
    how.setdefault("viewport", {"width": 1280, "height": 900})
    context = browser.new_context(**how)
    context.set_default_timeout(SOON_MS)
    try:
        yield Page(context.new_page(), origin)
    finally:
        context.close()


def ask(url, method="GET", body=None, headers=None):
    """Status, fields and text of an answer, whatever it is."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, method=method, data=data, headers=headers or {})
    if data is not None:
        request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.headers, refused.read().decode()


def picture(page, name):
    """Keeps a picture if somebody wants to look at it."""
    folder = os.environ.get("SLUICEGATE_PICTURES")
    if folder:
        page.page.screenshot(path=pathlib.Path(folder) / f"{name}.png", full_page=True)
