// Views of messages, and the assembly of an answer from its chunks.
import { Markdown, copyButton, element } from "./markdown.js";

// Adds a chunk. Tool calls arrive in pieces, identified by their index.
export function addDelta(message, delta) {
  message.content += delta.content ?? "";
  if (delta.reasoning_content) message.thoughts = (message.thoughts ?? "") + delta.reasoning_content;
  for (const { index, id, function: { name = "", arguments: text = "" } = {} } of delta.tool_calls ?? []) {
    message.calls ??= [];
    const call = (message.calls[index] ??= { id: "", type: "function", function: { name: "", arguments: "" } });
    if (id) call.id = id;
    call.function.name += name;
    call.function.arguments += text;
  }
}

function action(text, run) {
  const button = element("button", { type: "button", textContent: text, className: "quiet" });
  button.addEventListener("click", run);
  return button;
}

// The view of a message. `actions`: { onEdit(message, text), onRegenerate(message) }.
export class MessageView {
  constructor(message, actions) {
    this.message = message;
    this.actions = actions;
    this.isUsers = message.role === "user";
    this.text = element("div", { className: "text" });
    this.markdown = new Markdown(this.text);
    this.calls = element("div");
    this.failure = element("p", { className: "failure" });
    this.failure.setAttribute("role", "alert");
    this.figures = element("span", { className: "figures" });
    this.tools = element("footer", {}, this.figures, ...this.buttons());
    const className = `message ${message.role}`;
    this.root = element("article", { className }, this.text, this.calls, this.failure, this.tools);
    this.root.setAttribute("aria-label", this.isUsers ? "Your message" : "Answer");
    this.update();
  }

  buttons() {
    const copy = copyButton("Copy message", () => this.message.content);
    this.editButton = action("Edit", () => this.edit());
    return this.isUsers
      ? [copy, this.editButton]
      : [copy, action("Regenerate", () => this.actions.onRegenerate(this.message))];
  }

  // A growing answer has no actions, and screen readers wait for its end.
  setBusy(isBusy) {
    this.root.setAttribute("aria-busy", isBusy);
    this.root.classList.toggle("busy", isBusy);
  }

  update() {
    const { content, thoughts, calls, figures, failure } = this.message;
    if (this.isUsers) this.text.textContent = content;
    else this.markdown.show(content);
    if (thoughts) this.showThoughts(thoughts);
    (calls ?? []).forEach((call, i) => this.showCall(call, i));
    this.failure.textContent = failure ?? "";
    this.figures.textContent = figures ?? "";
  }

  showThoughts(thoughts) {
    if (!this.thoughts) {
      const text = element("div", { className: "text" });
      this.thoughts = new Markdown(text);
      this.root.prepend(element("details", {}, element("summary", { textContent: "Thoughts" }), text));
    }
    this.thoughts.show(thoughts);
  }

  showCall(call, i) {
    if (!this.calls.children[i]) {
      this.calls.append(element("details", {}, element("summary"), element("pre", { tabIndex: 0 })));
    }
    const [summary, text] = this.calls.children[i].children;
    summary.textContent = `Call of ${call.function.name}`;
    text.textContent = call.function.arguments;
  }

  // Replaces the text by a text field until it is sent or cancelled.
  edit() {
    const field = element("textarea", { value: this.message.content, rows: 4 });
    field.setAttribute("aria-label", "Edit your message");
    const end = () => {
      form.replaceWith(this.text);
      this.tools.hidden = false;
      this.editButton.focus();
    };
    const send = () => {
      end();
      if (field.value.trim()) this.actions.onEdit(this.message, field.value.trim());
    };
    const form = element("div", { className: "edit" }, field, action("Send", send), action("Cancel", end));
    field.addEventListener("keydown", (event) => {
      if (event.key === "Escape") end();
      else if (isSendKey(event)) send();
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    this.text.replaceWith(form);
    this.tools.hidden = true;
    field.focus();
  }
}

// Enter without Shift, unless it confirms input of an input method editor.
export function isSendKey(event) {
  return event.key === "Enter" && !event.shiftKey && !event.isComposing;
}
