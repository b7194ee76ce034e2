// Renders Markdown as models write it. Builds DOM elements with text nodes only, so HTML in the text stays text.

const DEEPEST = 12; // lists in quotes in lists

export function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

// Shows a growing text: rebuilds changed blocks only, so that a selection in the others survives.
export class Markdown {
  constructor(root) {
    this.root = root;
    this.sources = [];
  }

  show(text) {
    const blocks = [...blocksOf(text.replaceAll("\r", "").split("\n"), 0)];
    blocks.forEach(({ source, build }, i) => {
      if (this.sources[i] === source) return;
      if (i < this.sources.length) this.root.children[i].replaceWith(build());
      else this.root.append(build());
    });
    while (this.root.children.length > blocks.length) this.root.lastChild.remove();
    this.sources = blocks.map(({ source }) => source);
  }
}

// Block parsers: each tries the lines from `at` on and returns the end of its block and a builder, or nothing.
const KINDS = [fence, heading, rule, quote, list, table];

function* blocksOf(lines, depth) {
  for (let at = 0; at < lines.length; ) {
    if (!lines[at].trim()) {
      ++at;
      continue;
    }
    const block = blockAt(lines, at, depth) ?? paragraph(lines, at);
    yield { source: lines.slice(at, block.end).join("\n"), build: block.build };
    at = block.end;
  }
}

function blockAt(lines, at, depth) {
  if (depth > DEEPEST) return null;
  for (const kind of KINDS) {
    const block = kind(lines, at, depth);
    if (block) return block;
  }
  return null;
}

function addBlocks(parent, lines, depth) {
  for (const { build } of blocksOf(lines, depth)) parent.append(build());
  return parent;
}

function paragraph(lines, at) {
  let end = at + 1;
  while (end < lines.length && lines[end].trim() && !interrupts(lines, end)) ++end;
  const text = lines.slice(at, end).map((line) => line.trim()).join("\n");
  return { end, build: () => addInline(element("p"), text) };
}

// Called for every line, so it does not parse the block.
function startsBlock(lines, at) {
  const line = lines[at];
  return fenceAt(line) || HEADING.test(line) || isRule(line) || QUOTE.test(line) || itemAt(line) || isTable(lines, at);
}

// A number at the beginning of a line does not interrupt a paragraph: "the year\n1984. It was".
function interrupts(lines, at) {
  return startsBlock(lines, at) && !/^\s*(?!1[.)])\d+[.)]/.test(lines[at]);
}

function fenceAt(line) {
  const [, indent, marks, language] = line.match(/^(\s*)(`{3,}|~{3,})(.*)$/) ?? [];
  return marks && !language.includes("`") ? { indent, marks, language } : null;
}

// A fence without an end is code as well: the text is still growing.
function fence(lines, at) {
  const { indent, marks, language } = fenceAt(lines[at]) ?? {};
  if (!marks) return null;
  const isEnd = (line) => line.trim().startsWith(marks) && !line.trim().replaceAll(marks[0], "");
  let end = at + 1;
  while (end < lines.length && !isEnd(lines[end])) ++end;
  const code = lines.slice(at + 1, end).map((line) => without(line, indent.length)).join("\n");
  return { end: Math.min(end + 1, lines.length), build: () => codeBlock(code, language.trim().split(/\s/)[0]) };
}

function codeBlock(code, language) {
  const name = element("span", { textContent: language || "code" });
  const head = element("div", { className: "code-head" }, name, copyButton("Copy code", () => code));
  const text = element("pre", { tabIndex: 0 }, element("code", { textContent: code }));
  return element("div", { className: "code" }, head, text);
}

const HEADING = /^ {0,3}(#{1,6})\s+(.*)$/;

function heading(lines, at) {
  const [, marks, text] = lines[at].match(HEADING) ?? [];
  if (!marks) return null;
  const name = `h${Math.min(marks.length + 1, 6)}`; // the page has an h1 of its own
  return { end: at + 1, build: () => addInline(element(name), text.replace(/\s#+\s*$/, "")) };
}

const isRule = (line) => /^(?:-{3,}|\*{3,}|_{3,})$/.test(line.replace(/\s/g, ""));

function rule(lines, at) {
  return isRule(lines[at]) ? { end: at + 1, build: () => element("hr") } : null;
}

const QUOTE = /^ {0,3}> ?/;

function quote(lines, at, depth) {
  let end = at;
  while (end < lines.length && QUOTE.test(lines[end])) ++end;
  if (end === at) return null;
  const inner = lines.slice(at, end).map((line) => line.replace(QUOTE, ""));
  return { end, build: () => addBlocks(element("blockquote"), inner, depth + 1) };
}

const indentOf = (line) => line.length - line.trimStart().length;
const without = (line, spaces) => line.slice(Math.min(spaces, indentOf(line)));

function itemAt(line) {
  const [, indent, mark, gap, text] = line.match(/^(\s*)([-*+]|\d{1,9}[.)])(\s+|$)(.*)$/) ?? [];
  if (!mark) return null;
  const inner = indent.length + mark.length + Math.min(Math.max(gap.length, 1), 4);
  return { indent: indent.length, inner, mark, text };
}

// Items of a list share the kind of mark and about the same indent; deeper lines belong to the item.
function list(lines, at, depth) {
  const first = itemAt(lines[at]);
  if (!first) return null;
  const isOrdered = /\d/.test(first.mark);
  const items = [];
  let end = at;
  for (let inner = 0; end < lines.length; ++end) {
    const line = lines[end];
    const item = itemAt(line);
    const isAfterBlank = items.length > 0 && !lines[end - 1].trim();
    if (!line.trim() || (items.length > 0 && indentOf(line) >= first.indent + 2)) {
      items.at(-1).push(without(line, inner));
    } else if (item && /\d/.test(item.mark) === isOrdered && !isRule(line)) {
      inner = item.inner;
      items.push([item.text]);
    } else if (isAfterBlank || startsBlock(lines, end)) {
      break;
    } else {
      items.at(-1).push(line);
    }
  }
  const build = () => {
    const made = isOrdered ? element("ol", { start: parseInt(first.mark) }) : element("ul");
    for (const item of items) made.append(addBlocks(element("li"), item, depth + 1));
    return made;
  };
  return { end, build };
}

function cellsOf(line) {
  const inner = line.trim().replace(/^\|/, "").replace(/(?<!\\)\|$/, "");
  const cells = inner.split(/(?<!\\)\|/);
  return cells.map((cell) => cell.trim().replaceAll("\\|", "|"));
}

function isTable(lines, at) {
  if (!lines[at].includes("|") || !lines[at + 1]?.includes("-")) return false;
  const marks = cellsOf(lines[at + 1]);
  return marks.length === cellsOf(lines[at]).length && marks.every((mark) => /^:?-+:?$/.test(mark));
}

function table(lines, at) {
  if (!isTable(lines, at)) return null;
  const heads = cellsOf(lines[at]);
  const marks = cellsOf(lines[at + 1]);
  let end = at + 2;
  while (end < lines.length && lines[end].includes("|")) ++end;
  const sides = marks.map((mark) => (mark.endsWith(":") ? (mark.startsWith(":") ? "center" : "right") : ""));
  const row = (name, line) => {
    const cells = cellsOf(line);
    return element("tr", {}, ...heads.map((_, i) => addInline(element(name, { className: sides[i] }), cells[i] ?? "")));
  };
  const build = () => {
    const body = element("tbody", {}, ...lines.slice(at + 2, end).map((line) => row("td", line)));
    const whole = element("table", {}, element("thead", {}, row("th", lines[at])), body);
    return element("div", { className: "table", tabIndex: 0 }, whole);
  };
  return { end, build };
}

// Inline parsers: code, emphasis, links, line breaks.
function addInline(parent, text, isInLink = false, depth = 0) {
  const context = { text, isInLink, depth, absent: new Set() };
  let plain = "";
  for (let at = 0; at < text.length; ) {
    const found = depth > DEEPEST ? null : inlineAt(context, at);
    if (found?.node) {
      parent.append(plain, found.node);
      plain = "";
    } else {
      plain += found ? found.plain : text[at];
    }
    at = found ? found.end : at + 1;
  }
  parent.append(plain);
  return parent;
}

// Returns a node and the end of its source, or nothing for a plain character.
function inlineAt(context, at) {
  const { text } = context;
  switch (text[at]) {
    case "\n":
      return { end: at + 1, node: element("br") };
    case "\\":
      return /[!-/:-@[-`{-~]/.test(text[at + 1] ?? "") ? { end: at + 2, plain: text[at + 1] } : null;
    case "`":
      return codeSpan(context, at);
    case "*":
    case "_":
    case "~":
      return emphasis(context, at);
    case "!":
    case "[":
    case "<":
    case "h":
      return context.isInLink ? null : link(context, at);
    default:
      return null;
  }
}

function runAt(text, at) {
  let end = at;
  while (text[end] === text[at]) ++end;
  return end - at;
}

function codeSpan({ text, absent }, at) {
  const size = runAt(text, at);
  const marks = text.slice(at, at + size);
  let end = at + size;
  if (!absent.has(marks)) {
    while ((end = text.indexOf(marks, end)) >= 0) {
      const run = runAt(text, end);
      if (run === size) break;
      end += run;
    }
  }
  if (absent.has(marks) || end < 0) {
    absent.add(marks); // further on there is none either: long texts are not searched again and again
    return { end: at + size, plain: marks };
  }
  const code = text.slice(at + size, end).replaceAll("\n", " ");
  const inner = /^ .*\S.* $/.test(code) ? code.slice(1, -1) : code;
  return { end: end + size, node: element("code", { textContent: inner }) };
}

const isWord = (character) => /[\p{L}\p{N}]/u.test(character ?? "");
const isSpace = (character) => !character || /\s/.test(character);

function emphasis(context, at) {
  const { text, absent } = context;
  const mark = text[at];
  const run = runAt(text, at);
  const literal = { end: at + run, plain: text.slice(at, at + run) };
  const size = mark === "~" ? 2 : Math.min(run, 2);
  if (run > 3 || run < size || isSpace(text[at + run]) || (mark === "_" && isWord(text[at - 1]))) return literal;
  const key = mark.repeat(size);
  const end = absent.has(key) ? -1 : closingAt(text, at + run, mark, size);
  if (end < 0) {
    absent.add(key);
    return literal;
  }
  const name = mark === "~" ? "del" : size === 2 ? "strong" : "em";
  const inner = text.slice(at + size, end);
  return { end: end + size, node: addInline(element(name), inner, context.isInLink, context.depth + 1) };
}

function closingAt(text, from, mark, size) {
  for (let at = from; (at = text.indexOf(mark, at)) >= 0; ) {
    const run = runAt(text, at);
    const isOther = run < size || (size === 1 && run === 2); // a closer of the other kind
    const isInWord = mark === "_" && isWord(text[at + run]);
    if (!isOther && !isInWord && !isSpace(text[at - 1]) && text[at - 1] !== "\\") return at + run - size;
    at += run;
  }
  return -1;
}

const NAMED_LINK = /!?\[([^[\]]*)\]\(\s*([^()\s]*(?:\([^()\s]*\)[^()\s]*)*)(?:\s+"[^"]*")?\s*\)/y;
const BARE_LINK = /<?(https?:\/\/[^\s<>"`*|]+)>?/y;

function link(context, at) {
  const { text } = context;
  NAMED_LINK.lastIndex = BARE_LINK.lastIndex = at;
  const named = NAMED_LINK.exec(text);
  if (named) {
    const href = safeAddress(named[2]);
    if (!href) return null;
    return { end: at + named[0].length, node: addInline(anchor(href, ""), named[1] || href, true, context.depth + 1) };
  }
  const bare = isWord(text[at - 1]) ? null : BARE_LINK.exec(text);
  if (!bare) return null;
  const isFramed = bare[0].startsWith("<");
  const address = isFramed ? bare[1] : bare[1].replace(/[.,;:!?'_~]+$/, "").replace(/^([^(]*)\).*$/, "$1");
  const href = safeAddress(address);
  if (!href) return null;
  return { end: at + (isFramed ? bare[0].length : address.length), node: anchor(href, address) };
}

// Links may open http(s) addresses only, not scripts or files.
function safeAddress(address) {
  try {
    const url = new URL(address);
    return url.protocol === "http:" || url.protocol === "https:" ? url.href : null;
  } catch {
    return null;
  }
}

function anchor(href, text) {
  return element("a", { href, textContent: text, target: "_blank", rel: "noopener noreferrer" });
}

export function copyButton(label, textOf) {
  const button = element("button", { type: "button", textContent: "Copy", className: "quiet" });
  button.setAttribute("aria-label", label);
  button.addEventListener("click", async () => {
    button.textContent = (await copy(textOf())) ? "Copied" : "Not allowed";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  return button;
}

// navigator.clipboard exists on localhost and with TLS only; execCommand works elsewhere.
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = element("textarea", { value: text, className: "hidden-text" });
    document.body.append(area);
    area.select();
    const isDone = document.execCommand("copy");
    area.remove();
    return isDone;
  }
}
