#!/usr/bin/env python3
"""Uses the page of `pinion serve` in a browser.

page_in_browser.py CHROMIUM URL URL_WITH_KEY [--shots DIR]: the second server's key is "secret". Exit status 0: success.
--shots also writes screenshots of the page."""

import json
import sys
import time
import urllib.request

from browser import Browser

ANSWER = "document.querySelector('.message.assistant:last-child')"
TEXT = f"{ANSWER}?.querySelector(':scope > .text').innerText.trim()"
IDLE = "document.getElementById('stop').hidden"
READY = "!!document.getElementById('context')?.textContent"


def equal(is_value, want):
    if is_value != want:
        raise AssertionError(f"{is_value!r} instead of {want!r}")


def settle(browser, limit_s=60):
    """Waits until the last answer is complete and has its statistics."""
    browser.wait(f"{IDLE} && ({ANSWER}?.getAttribute('aria-busy') === 'false')", limit_s)


def set_settings(browser, **settings):
    browser.run(f"localStorage.setItem('pinion.settings', JSON.stringify({json.dumps(settings)}))")


def send(browser, text):
    browser.run("document.getElementById('input').focus()")
    browser.type(text)
    browser.key("Enter")


def api_reply(url, messages, **settings):
    body = json.dumps({"messages": messages, **settings}).encode()
    request = urllib.request.Request(f"{url}/v1/chat/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]


def user(text):
    return {"role": "user", "content": text}


def check_answers(browser, url):
    browser.open(url, READY)
    set_settings(browser, seed="5", max_tokens="60")
    browser.run("document.getElementById('input').focus()")
    browser.type("Tell me a story")
    browser.key("Enter", shift=True)
    browser.type("about an owl.")
    browser.key("Enter")
    settle(browser)
    question = "Tell me a story\nabout an owl."
    want = api_reply(url, [user(question)], seed=5, max_tokens=60)
    stored = "JSON.parse(localStorage['pinion.chat.' + localStorage['pinion.open']]).messages"
    equal(browser.run(f"{stored}.map((m) => m.content)"), [question, want])
    figures = browser.run(f"{ANSWER}.querySelector('.figures').textContent")
    for part in ("tokens/s", "to the first", "of the context", "seed 5"):
        assert part in figures, figures
    return question, want, stored


def check_conversation(browser, url):
    question, want, stored = check_answers(browser, url)
    # The next message includes the conversation so far.
    send(browser, "Tell me another one.")
    settle(browser)
    before = [user(question), {"role": "assistant", "content": want}, user("Tell me another one.")]
    second = api_reply(url, before, seed=5, max_tokens=60)
    equal(browser.run(f"{stored}.slice(3).map((m) => m.content)"), [second])
    # Regenerates with another seed.
    set_settings(browser, seed="6", max_tokens="60")
    click(browser, f"{ANSWER}.querySelector('footer')", "Regenerate")
    browser.wait(f"{IDLE} && {ANSWER}?.querySelector('.figures').textContent.includes('seed 6')")
    third = api_reply(url, before, seed=6, max_tokens=60)
    equal(browser.run(f"{stored}.slice(3).map((m) => m.content)"), [third])
    assert second != third
    # An edited message replaces all that follows it.
    click(browser, "document.querySelector('.message.user footer')", "Edit")
    browser.run("document.querySelector('.edit textarea').select()")
    browser.type("Who are you?")
    browser.key("Enter")
    browser.wait(f"document.querySelectorAll('.message').length === 2 && {IDLE}")
    settle(browser)
    equal(browser.run(f"{stored}.map((m) => m.content)"),
          ["Who are you?", api_reply(url, [user("Who are you?")], seed=6, max_tokens=60)])


def click(browser, within, text):
    browser.run(f"[...{within}.querySelectorAll('button')].find((b) => b.textContent === {json.dumps(text)}).click()")


def metric(url, name):
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        text = answer.read().decode()
    _, _, value = text.partition(f"\npinion_{name} ")
    return float(value.split("\n")[0] or -1)


def wait_for(condition, what, limit_s=60):
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, f"timeout: {what}"
        time.sleep(0.05)


def check_stop(browser, url):
    """Escape ends the server's work; the text so far stays."""
    before = metric(url, "texts_cancelled_total")
    wait_for(lambda: metric(url, "roof_bytes_per_second") > 0, "a roof")
    # 64 answers at once, because the demo model finishes one too quickly to be stopped.
    browser.run("""const send = window.fetch;
        window.fetch = (path, options) => send(path, !options.body ? options :
            {...options, body: JSON.stringify({...JSON.parse(options.body), n: 64, ignore_eos: true})})""")
    set_settings(browser)
    click(browser, "document.getElementById('side')", "New chat")
    browser.wait("document.querySelectorAll('.message').length === 0")
    send(browser, "Tell me a story about an owl.")
    browser.wait(f"{TEXT}?.length > 500")
    browser.key("Escape")
    settle(browser)
    figures = browser.run(f"{ANSWER}.querySelector('.figures').textContent")
    assert figures.startswith("stopped") and "of the roof" in figures, figures
    assert browser.run(f"{TEXT}.length") > 0
    wait_for(lambda: metric(url, "texts_running") + metric(url, "texts_waiting") == 0, "the end of the work")
    assert metric(url, "texts_cancelled_total") > before


def check_list(browser, url):
    """Conversations survive a reload, can be renamed, exported and deleted."""
    count = "document.querySelectorAll('#chats li').length"
    equal(browser.run(count), 2)
    browser.run("document.querySelectorAll('#chats button')[1].click()")
    browser.wait(f"{TEXT} && document.querySelector('#chats li:nth-child(2) button').ariaCurrent === 'true'")
    messages = browser.run("document.getElementById('log').innerText")
    browser.open("about:blank")
    browser.open(url, f"location.href !== 'about:blank' && {READY} && {count} === 2")
    equal(browser.run("document.getElementById('log').innerText"), messages)
    click(browser, "document.getElementById('side')", "Rename")
    browser.wait("document.querySelector('#chats li:first-child button').textContent === 'A title'")
    browser.run("URL.createObjectURL = (file) => { window.file = file; return '#'; }")
    click(browser, "document.getElementById('side')", "Export")
    exported = json.loads(browser.run("window.file.text()"))
    equal(exported["title"], "A title")
    equal([one["role"] for one in exported["messages"]], ["user", "assistant"])
    click(browser, "document.getElementById('side')", "Delete")
    browser.wait(f"{count} === 1 && document.querySelectorAll('.message').length === 0")


def check_use(browser, url):
    """Copying, dark and light, accessible names, a model that is still being loaded."""
    browser.call("Browser.grantPermissions", origin=url, permissions=["clipboardReadWrite"])
    browser.open(url, f"{READY} && !!{ANSWER}")
    browser.call("Page.bringToFront")
    click(browser, f"{ANSWER}.querySelector('.code')", "Copy")
    browser.wait(f"{ANSWER}.querySelector('.code button').textContent === 'Copied'")
    equal(browser.run("navigator.clipboard.readText()"), "c" * 300)
    ground = "getComputedStyle(document.body).backgroundColor"
    light = browser.run(ground)
    click(browser, "document.querySelector('header')", "Dark")
    assert browser.run(ground) != light
    browser.open(url, READY)
    assert browser.run(ground) != light
    for node in browser.call("Accessibility.getFullAXTree")["nodes"]:
        role = node.get("role", {}).get("value")
        if not node["ignored"] and role in ("button", "textbox", "spinbutton", "link", "log", "dialog"):
            assert node["name"]["value"], node
    # The status during loading, then the model.
    loading = {"error": {"message": "the model is being loaded"}}
    browser.answer_once("*/v1/models", 503, json.dumps(loading))
    browser.open(url, "document.getElementById('status')?.textContent === 'the model is being loaded'")
    browser.wait(READY)
    equal(browser.run("document.getElementById('status').textContent"), "")


def check_errors(browser, url, locked):
    browser.open(url, READY)
    set_settings(browser, temperature="-1")
    send(browser, "Hello")
    settle(browser)
    words = browser.run(f"{ANSWER}.querySelector('.failure').textContent")
    assert "temperature" in words, words
    # Without a key the settings open and show the reason; with the key everything works.
    browser.open(locked, "document.getElementById('settings')?.open")
    equal(browser.run("document.querySelector('#settings .failure').textContent"), "the key is missing or wrong")
    equal(browser.run("document.activeElement.name"), "key")
    browser.type("secret")
    browser.key("Enter")
    browser.wait(READY)
    send(browser, "Who are you?")
    browser.wait(f"{IDLE} && {TEXT}?.length > 0")


def check_units(browser, url):
    browser.open(url, READY)
    with open(f"{sys.path[0]}/page_units.js", encoding="utf-8") as script:
        equal(browser.run(script.read()), [])


def check_widths(browser, url):
    """No text of the model makes the page wider than a small phone."""
    text = "\n\n".join(["A" * 300, "`" + "b" * 200 + "`", "```js\n" + "c" * 300 + "\n```",
                        "|" + "d | " * 30 + "\n|" + "-|" * 30, "# " + "E" * 100, "- " * 8 + "deep"])
    chat = {"id": "wide", "title": "", "changed": 9e15, "messages": [user("F" * 200), {
        "role": "assistant", "content": text, "thoughts": "G" * 200, "figures": "H " * 60, "failure": "I" * 200,
        "calls": [{"function": {"name": "J" * 100, "arguments": "K" * 300}}]}]}
    browser.run(f"localStorage['pinion.chat.wide'] = {json.dumps(json.dumps(chat))}")
    browser.run("localStorage['pinion.open'] = 'wide'")
    browser.size(360, 740)
    browser.open(url, f"{READY} && !!{ANSWER}")
    browser.run("document.querySelectorAll('details').forEach((one) => (one.open = true))")
    assert browser.run("document.documentElement.scrollWidth") <= 360
    equal(browser.run("document.querySelector('main').scrollWidth - document.querySelector('main').clientWidth"), 0)
    equal(browser.run("document.querySelector('header').scrollWidth <= 360"), True)
    browser.size(1280, 800)


def main():
    program, url, locked = sys.argv[1:4]
    browser = Browser(program)
    try:
        browser.size(1280, 800)
        check_conversation(browser, url)
        check_stop(browser, url)
        check_list(browser, url)
        check_units(browser, url)
        check_widths(browser, url)
        check_use(browser, url)
        if "--shots" in sys.argv:
            from page_shots import shoot_all
            shoot_all(browser, url, sys.argv[-1])
        equal([one for one in browser.events if "503" not in one], [])
        check_errors(browser, url, locked)
    finally:
        browser.close()


if __name__ == "__main__":
    main()
