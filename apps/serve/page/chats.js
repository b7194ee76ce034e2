// Conversations, one entry each in the browser's local storage.

const PREFIX = "pinion.chat.";

export function newChat() {
  const id = `${Date.now().toString(36)}-${Math.random().toString(36).slice(2, 8)}`;
  return { id, title: "", changed: 0, messages: [] };
}

// Null if the entry is absent or not a conversation.
export function readChat(id) {
  try {
    const chat = JSON.parse(localStorage.getItem(PREFIX + id));
    return Array.isArray(chat?.messages) ? chat : null;
  } catch {
    return null;
  }
}

// Newest first.
export function listChats() {
  return Object.keys(localStorage)
    .filter((name) => name.startsWith(PREFIX))
    .map((name) => readChat(name.slice(PREFIX.length)))
    .filter((chat) => chat)
    .sort((a, b) => b.changed - a.changed);
}

// False if the storage is full.
export function saveChat(chat) {
  chat.changed = Date.now();
  try {
    localStorage.setItem(PREFIX + chat.id, JSON.stringify(chat));
    return true;
  } catch {
    return false;
  }
}

export function deleteChat(id) {
  localStorage.removeItem(PREFIX + id);
}

// Id of the open conversation, which a reload opens again.
export function openId() {
  return localStorage.getItem("pinion.open");
}

export function setOpenId(id) {
  try {
    localStorage.setItem("pinion.open", id);
  } catch {
    // The storage is full; saving a conversation reports it.
  }
}

export function isChatEntry(name) {
  return name?.startsWith(PREFIX);
}

export function titleOf(chat) {
  const first = chat.messages[0]?.content.trim().replace(/\s+/g, " ") ?? "";
  return chat.title || (first.length > 48 ? first.slice(0, 47) + "…" : first) || "New chat";
}

export function exportChat(chat) {
  const file = new Blob([JSON.stringify(chat, null, 2) + "\n"], { type: "application/json" });
  const link = document.createElement("a");
  link.href = URL.createObjectURL(file);
  link.download = titleOf(chat).replace(/[^\p{L}\p{N} _-]/gu, "").trim().slice(0, 40) + ".json";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
