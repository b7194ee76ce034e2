// Shared by the functions of the C interface: error codes and texts, arguments, results in plain memory, the lock of a
// model's passes, and the structs behind the handles.
#pragma once

#include <sched.h>

#include <cstdlib>
#include <exception>
#include <new>

#include "apps/library/pinion.h"
#include "apps/model/open.h"
#include "engine/session/session.h"
#include "tokenizer/templates/chat_template.h"

namespace pinion {

// --- Errors

// Stores the text of this thread's last failure and returns the code. Allocates nothing; cuts long texts.
pinion_status failed(pinion_status status, std::string_view text) noexcept;

inline pinion_status failed(pinion_status status, const Error& e) { return failed(status, e.message()); }

inline pinion_status invalid(const Error& e) { return failed(PINION_ERROR_ARGUMENT, e); }

struct Argument {
  Argument(const char* argument, const auto& given) : name(argument), is_given(given) {}
  const char* name;
  bool is_given;
};

// Calls f if all arguments are given, and turns exceptions into codes: none may leave the library.
template <class F>
pinion_status guarded(std::initializer_list<Argument> arguments, const F& f) noexcept {
  try {
    const auto* absent = std::ranges::find(arguments, false, &Argument::is_given);
    return absent == arguments.end() ? f() : invalid(error("NULL", absent->name));
  } catch (const std::bad_alloc&) {
    return failed(PINION_ERROR_MEMORY, "out of memory");
  } catch (const std::exception& e) {
    return failed(PINION_ERROR_INTERNAL, e.what());
  } catch (...) {
    return failed(PINION_ERROR_INTERNAL, "an exception of unknown type");
  }
}

inline pinion_status busy() {
  return failed(PINION_ERROR_BUSY, "a callback called a function that needs the model, which is running");
}

// PINION_ERROR_MEMORY for the engine's errors about memory, otherwise `other`.
inline pinion_status status_of(const Error& e, pinion_status other = PINION_ERROR_ARGUMENT) {
  return failed(e.needed_bytes > 0 ? PINION_ERROR_MEMORY : other, e);
}

// --- Arguments

// Copies the caller's options, perhaps of another version: missing fields are 0, unknown ones must be. Null: defaults.
template <class Options>
Error read_options(const Options* given, const char* name, Options* out) {
  *out = {};
  if (!given) return {};
  constexpr size_t kMaxBytes = 1 << 16;  // beyond the size of any future version
  if (given->size < sizeof given->size || given->size > kMaxBytes) {
    return error("size is not set", name, "sizeof the options", given->size);
  }
  const auto* bytes = reinterpret_cast<const std::byte*>(given);
  const size_t known = std::min(given->size, sizeof *out);
  std::memcpy(static_cast<void*>(out), bytes, known);
  if (std::any_of(bytes + known, bytes + given->size, [](std::byte b) { return b != std::byte{0}; })) {
    return error("has fields that this version of the library does not know", name,
                 std::to_string(sizeof *out) + " bytes", given->size);
  }
  return {};
}

inline std::string_view text_or_empty(const char* text) { return text ? text : ""; }

// A list of C strings, which must not be null.
inline Error read_texts(const char* const* texts, size_t count, const char* name, std::vector<std::string>* out) {
  if (count > 0 && !texts) return error("NULL", name, std::to_string(count) + " texts");
  for (const char* text : std::span(texts, count)) {
    if (!text) return error("NULL", name, "texts");
    out->emplace_back(text);
  }
  return {};
}

inline Error check_range(const char* name, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return {};
  return error("out of range", name, std::to_string(min) + " to " + std::to_string(max), value);
}

// --- Results for pinion_free()

template <class T>
T* allocate(size_t count) {
  void* memory = std::malloc(std::max<size_t>(1, count * sizeof(T)));
  if (!memory) throw std::bad_alloc();
  return static_cast<T*>(memory);
}

inline pinion_status give_ids(std::span<const int32_t> ids, int32_t** out, size_t* count) {
  *out = allocate<int32_t>(ids.size());
  std::ranges::copy(ids, *out);
  *count = ids.size();
  return PINION_OK;
}

// Zero-terminated.
inline char* copy_of(std::string_view text) {
  auto* copy = allocate<char>(text.size() + 1);
  std::ranges::copy(text, copy);
  copy[text.size()] = '\0';
  return copy;
}

// --- Passes

// Serialises the passes of one model.
struct PassMutex {
  std::mutex mutex;
  std::atomic<std::thread::id> owner;  // default-constructed: no thread
};

// Holds the mutex, except in a callback of the thread that holds it. Restores the affinity that a pass has changed.
class PassLock {
 public:
  explicit PassLock(PassMutex& passes);
  ~PassLock();

  bool is_held() const { return lock_.owns_lock(); }  // false in a callback

 private:
  PassMutex& passes_;
  std::unique_lock<std::mutex> lock_;
  cpu_set_t affinity_;
  bool has_affinity_ = false;
};

// --- Handles

struct OpenModel {
  PassMutex passes;
  RunOptions run;
  std::shared_ptr<const Tokenizer> tokenizer;  // null: the folder has none
  Runtime runtime;

  std::mutex template_mutex;  // protects the next two
  bool is_template_read = false;
  std::shared_ptr<const ChatTemplate> chat_template;
};

}  // namespace pinion

struct pinion_model {
  std::shared_ptr<pinion::OpenModel> shared;
};

struct pinion_session {
  std::shared_ptr<pinion::OpenModel> model;  // outlives the session
  std::unique_ptr<pinion::Session> session;
  std::atomic<bool> interrupted{false};
};
