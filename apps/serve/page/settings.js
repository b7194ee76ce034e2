// The user's settings, in the browser's local storage. The server decides about empty fields.

const ENTRY = "pinion.settings";
const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "seed", "max_tokens"];

export function readSettings() {
  try {
    return JSON.parse(localStorage.getItem(ENTRY)) ?? {};
  } catch {
    return {};
  }
}

function write(settings) {
  localStorage.setItem(ENTRY, JSON.stringify(settings));
}

export function chooseModel(name) {
  write({ ...readSettings(), model: name });
}

// The request for the message after `messages`.
export function requestFor(messages, settings) {
  const request = { messages: [] };
  if (settings.system) request.messages.push({ role: "system", content: settings.system });
  for (const { role, content, calls } of messages) {
    request.messages.push(calls?.length ? { role, content, tool_calls: calls } : { role, content });
  }
  for (const name of NUMBERS) {
    if (settings[name]) request[name] = Number(settings[name]);
  }
  return request;
}

// Opens the settings. `reason`: the failure because of which the page opens them itself.
export function openSettings(reason = "") {
  const dialog = document.getElementById("settings");
  const form = dialog.querySelector("form");
  const settings = readSettings();
  for (const name of ["system", ...NUMBERS, "key"]) form.elements[name].value = settings[name] ?? "";
  form.querySelector(".failure").textContent = reason;
  if (!dialog.open) dialog.showModal();
  form.elements[reason ? "key" : "system"].focus();
}

export function prepareSettings(onSaved) {
  const dialog = document.getElementById("settings");
  const form = dialog.querySelector("form");
  form.addEventListener("submit", () => {
    const { theme, model } = readSettings();
    write({ ...Object.fromEntries(new FormData(form)), theme, model });
    onSaved();
  });
  document.getElementById("cancel-settings").addEventListener("click", () => dialog.close());
}

// "dark" or "light"; the system's preference until the user chooses.
function theme() {
  return readSettings().theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

export function prepareTheme() {
  const button = document.getElementById("theme");
  const show = () => {
    const chosen = readSettings().theme;
    if (chosen) document.documentElement.dataset.theme = chosen;
    button.textContent = theme() === "dark" ? "Light" : "Dark";
  };
  button.addEventListener("click", () => {
    write({ ...readSettings(), theme: theme() === "dark" ? "light" : "dark" });
    show();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  show();
}
