"""The page for keyboards and screen readers, with the checks of axe-core. ADMIN GATEWAY"""

import pathlib
import sys

import axe_playwright_python
from playwright.sync_api import expect

from browser import ask, chromium, opened

admin, gateway = sys.argv[1:3]
AXE = (pathlib.Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()

CHECK = """async () => {
    const { violations } = await axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"] });
    return violations.map((one) => `${one.id}: ${one.help}: ${one.nodes.slice(0, 3).map((node) => node.html).join(" ")}`);
}"""

with chromium() as browser:
    for scheme in ["dark", "light"]:
        # The page's own policy would not let a check in.
        with opened(browser, admin, color_scheme=scheme, bypass_csp=True) as page:
            page.open().is_live()
            ask(gateway + "/a", headers={"x-user": "a"})
            ask(gateway + "/a", headers={"x-user": "a"})
            page.page.wait_for_timeout(1500)
            page.page.evaluate(AXE)
            found = page.page.evaluate(CHECK)
            assert found == [], "\n".join(found)
    with opened(browser, admin) as page:
        page.open().is_live()
        # Everything that can be used has a name, and every field a label.
        named = page.page.evaluate("""() => [...document.querySelectorAll("button, input, textarea, select")].filter(
            (one) => one.offsetParent && !one.textContent.trim() && !one.labels?.length && !one.ariaLabel).map((one) => one.outerHTML)""")
        assert named == [], named
        # Headings go down one step at a time, and each section is named by one.
        levels = page.page.evaluate("[...document.querySelectorAll('h1, h2, h3')].filter((one) => one.offsetParent).map((one) => Number(one.tagName[1]))")
        assert levels[0] == 1 and all(after - before <= 1 for before, after in zip(levels, levels[1:])), levels
        assert page.page.evaluate("[...document.querySelectorAll('section')].every((one) => document.getElementById(one.getAttribute('aria-labelledby')))")
        for chart in page.page.query_selector_all("[role=img]"):
            assert chart.get_attribute("aria-label").startswith("Per second: "), chart.get_attribute("aria-label")
        # The first key leads past what is at the top, and the next ones through every control without a trap.
        page.page.keyboard.press("Tab")
        expect(page.at(".skip")).to_be_focused()
        page.page.keyboard.press("Enter")
        seen = []
        for _ in range(60):
            page.page.keyboard.press("Tab")
            seen.append(page.page.evaluate("document.activeElement.id || document.activeElement.textContent"))
            if "uplot" in page.page.evaluate("document.activeElement.getAttribute('href') ?? ''"):
                break
        for wanted in ["request-id", "policies", "explain-url", "explain-headers"]:
            assert wanted in seen, (wanted, seen)
        page.has_no_faults()
print("accessible")
