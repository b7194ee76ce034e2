"""A headless Chromium, driven by its DevTools protocol over pipes: no package is needed."""

import base64
import json
import os
import select
import subprocess
import tempfile
import time


class Browser:
    def __init__(self, program):
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        # It reads what it is told from descriptor 3 and answers on descriptor 4.
        theirs_in, self.out = os.pipe()
        self.answers, theirs_out = os.pipe()
        moved = [os.dup(theirs_in), os.dup(theirs_out)]  # off 3 and 4, wherever they were

        def place():
            os.dup2(moved[0], 3)
            os.dup2(moved[1], 4)

        options = ["--headless=new", "--remote-debugging-pipe", "--disable-gpu", "--no-first-run", "--disable-sync",
                   "--disable-background-networking", "--disable-dev-shm-usage", "--hide-scrollbars", "--mute-audio",
                   f"--user-data-dir={self.folder.name}"]
        if os.geteuid() == 0:
            options.append("--no-sandbox")  # which root cannot have
        self.process = subprocess.Popen([program, *options, "about:blank"], preexec_fn=place, close_fds=False,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for one in (theirs_in, theirs_out, *moved):
            os.close(one)
        self.buffer = b""
        self.last_id = 0
        self.events = []
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def read(self, limit_s):
        """The next message."""
        end = time.monotonic() + limit_s
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.answers], [], [], max(0, end - time.monotonic()))
            piece = os.read(self.answers, 1 << 16) if ready else b""
            if not piece:
                raise TimeoutError("the browser does not answer")
            self.buffer += piece
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def send(self, method, **params):
        self.last_id += 1
        message = {"id": self.last_id, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        return self.last_id

    def call(self, method, **params):
        number = self.send(method, **params)
        while True:
            answer = self.read(60)
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            if "method" in answer:
                self.on_event(answer)

    def on_event(self, event):
        """Says yes to what the page asks, answers for the server, keeps what the page complains about."""
        params = event["params"]
        if event["method"] == "Page.javascriptDialogOpening":
            self.send("Page.handleJavaScriptDialog", accept=True, promptText="A title")
        elif event["method"] == "Fetch.requestPaused":
            self.send("Fetch.fulfillRequest", requestId=params["requestId"], **self.answer)
            self.send("Fetch.disable")
        elif event["method"] == "Runtime.exceptionThrown":
            self.events.append(params["exceptionDetails"]["exception"].get("description", "exception"))
        elif event["method"] == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.events.append(params["entry"]["text"] + " " + params["entry"].get("url", ""))

    def run(self, expression):
        """The value of JavaScript in the page; promises are awaited."""
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait(self, expression, limit_s=60):
        """Until it is true."""
        end = time.monotonic() + limit_s
        while not self.run(expression):
            if time.monotonic() > end:
                raise TimeoutError(f"never true: {expression}; {self.events}; {self.run('document.body.innerText')}")
            time.sleep(0.05)

    def open(self, url, waits_for="document.readyState === 'complete'"):
        self.call("Page.navigate", url=url)
        self.wait(waits_for)

    def key(self, name, shift=False):
        codes = {"Enter": 13, "Escape": 27, "Tab": 9}
        event = {"key": name, "code": name, "windowsVirtualKeyCode": codes[name], "modifiers": 8 if shift else 0}
        if name == "Enter":
            event["text"] = "\r"
        self.call("Input.dispatchKeyEvent", type="keyDown", **event)
        self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def answer_once(self, pattern, status, body):
        """The next request of this address gets this answer; later ones reach the server."""
        self.answer = {"responseCode": status, "body": base64.b64encode(body.encode()).decode()}
        self.call("Fetch.enable", patterns=[{"urlPattern": pattern}])

    def size(self, width, height, theme="light"):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])

    def shoot(self, file):
        with open(file, "wb") as out:
            out.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def close(self):
        self.process.terminate()
        self.process.wait()
        os.close(self.out)
        os.close(self.answers)
        self.folder.cleanup()
