// Tests the Markdown renderer and the assembly of messages from chunks. Evaluates to the list of differences.
(async () => {
  const { Markdown } = await import("/markdown.js");
  const htmlOf = (text) => {
    const root = document.createElement("div");
    new Markdown(root).show(text);
    return root.innerHTML.replaceAll(' tabindex="0"', "").replaceAll(' target="_blank" rel="noopener noreferrer"', "");
  };
  const cases = [
    ["two\nlines\n\nnext", "<p>two<br>lines</p><p>next</p>"],
    ["# One\n### Three ##", "<h2>One</h2><h4>Three</h4>"],
    ["**bold** *it* __b__ _i_ ***both*** ~~gone~~", "<p><strong>bold</strong> <em>it</em> <strong>b</strong> <em>i</em> <strong><em>both</em></strong> <del>gone</del></p>"],
    ["*a **b** c* **d *e***", "<p><em>a <strong>b</strong> c</em> <strong>d <em>e</em></strong></p>"],
    ["snake_case_name 2 * 3 * 4 \\*no\\* **open", "<p>snake_case_name 2 * 3 * 4 *no* **open</p>"],
    ["`a*b*` `` c`d `` `open", "<p><code>a*b*</code> <code>c`d</code> `open</p>"],
    ["- a\n- b\n  - c\n\n    more\n- d", "<ul><li><p>a</p></li><li><p>b</p><ul><li><p>c</p><p>more</p></li></ul></li><li><p>d</p></li></ul>"],
    ["3. x\n4. y\nlazy\n\nend", '<ol start="3"><li><p>x</p></li><li><p>y<br>lazy</p></li></ol><p>end</p>'],
    ["the year\n1984. It was", "<p>the year<br>1984. It was</p>"],
    ["- a\n1. b", '<ul><li><p>a</p></li></ul><ol start="1"><li><p>b</p></li></ol>'],
    ["> q\n> > r\n\n---", "<blockquote><p>q</p><blockquote><p>r</p></blockquote></blockquote><hr>"],
    ["| a | b |\n|---|--:|\n| 1 | **2** |\n| 3 \\| 4 |", '<div class="table"><table><thead><tr><th class="">a</th><th class="right">b</th></tr></thead><tbody><tr><td class="">1</td><td class="right"><strong>2</strong></td></tr><tr><td class="">3 | 4</td><td class="right"></td></tr></tbody></table></div>'],
    ["[a](https://b.example/c_(d)) <https://e.example> see https://f.example/g.", '<p><a href="https://b.example/c_(d)">a</a> <a href="https://e.example/">https://e.example</a> see <a href="https://f.example/g">https://f.example/g</a>.</p>'],
    ["(https://a.example/b) [https://c.example](http://d.example)", '<p>(<a href="https://a.example/b">https://a.example/b</a>) <a href="http://d.example/">https://c.example</a></p>'],
    // Must not become markup, scripts or requests.
    ["<img src=x onerror=alert(1)>", "<p>&lt;img src=x onerror=alert(1)&gt;</p>"],
    ["<script>alert(1)</script>", "<p>&lt;script&gt;alert(1)&lt;/script&gt;</p>"],
    ["[a](javascript:alert(1)) [b](data:text/html,x) [c](/local)", "<p>[a](javascript:alert(1)) [b](data:text/html,x) [c](/local)</p>"],
    ['[a](https://b.example/"onclick="x)', '<p><a href="https://b.example/%22onclick=%22x">a</a></p>'],
    ["![i](https://b.example/i.png)", '<p><a href="https://b.example/i.png">i</a></p>'],
  ];
  const wrong = cases.map(([text, want]) => [htmlOf(text), want]).filter(([is, want]) => is !== want);

  const code = htmlOf("```html\n<b onclick=x>\n  in\n");
  if (!code.includes("<code>&lt;b onclick=x&gt;\n  in\n</code>")) wrong.push(code);

  // Growing letter by letter gives the same result as rendering once; complete blocks are not rebuilt.
  const text = cases.map(([one]) => one).join("\n\n") + "\n\n```c\nint x;\n```\nend";
  const root = document.createElement("div");
  const growing = new Markdown(root);
  growing.show("first\n\n");
  const first = root.firstChild;
  for (let end = 0; end <= text.length; ++end) growing.show("first\n\n" + text.slice(0, end));
  const whole = document.createElement("div");
  new Markdown(whole).show("first\n\n" + text);
  if (root.innerHTML !== whole.innerHTML) wrong.push(["growing", root.innerHTML, whole.innerHTML]);
  if (root.firstChild !== first) wrong.push("the first block was rebuilt");

  // Calls arrive in pieces with an index; thoughts and calls are folded at first.
  const { MessageView, addDelta } = await import("/messages.js");
  const message = { role: "assistant", content: "" };
  const view = new MessageView(message, {});
  const call = (index, rest) => ({ tool_calls: [{ index, ...rest }] });
  for (const delta of [
    { role: "assistant", content: "" },
    { reasoning_content: "I <b>wonder" },
    { reasoning_content: "</b>." },
    { content: "Let me " },
    { content: "look." },
    call(0, { id: "a", type: "function", function: { name: "look", arguments: "" } }),
    call(0, { function: { arguments: '{"at":' } }),
    call(0, { function: { arguments: ' "<i>"}' } }),
    call(1, { id: "b", type: "function", function: { name: "go", arguments: "{}" } }),
  ]) {
    addDelta(message, delta);
    view.update();
  }
  const calls = [
    { id: "a", type: "function", function: { name: "look", arguments: '{"at": "<i>"}' } },
    { id: "b", type: "function", function: { name: "go", arguments: "{}" } },
  ];
  const wanted = { role: "assistant", content: "Let me look.", thoughts: "I <b>wonder</b>.", calls };
  if (JSON.stringify(message) !== JSON.stringify(wanted)) wrong.push(message);
  const folded = [...view.root.querySelectorAll("details:not([open])")].map((one) => one.textContent);
  const shown = ["ThoughtsI <b>wonder</b>.", 'Call of look{"at": "<i>"}', "Call of go{}"];
  if (folded.join("|") !== shown.join("|")) wrong.push(folded);

  // Hostile texts must not take quadratic time.
  for (const piece of ["*", "**a ", "_a ", "`", "``a`", "[", "[a](", '[a](b "', "> ", "- ", "- a\n1. b\n", "|", "|\n-|\n", "~~", "<https:", "  - a\n"]) {
    const start = performance.now();
    htmlOf(piece.repeat(20000));
    const took = performance.now() - start;
    if (took > 3000) wrong.push(`${JSON.stringify(piece)}: ${took} ms`);
  }
  return wrong;
})();
