// What the first of several boards tells the others, as bytes. All are of one build: nothing of it is checked.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "engine/boards/exchange.h"
#include "engine/forward/pass.h"
#include "kernels/base/error.h"

namespace pinion {

enum class Order : int64_t {
  load,      // the model, by these options
  open,      // memory for the passes of a session or scheduler
  pass,      // one pass of it
  profile,   // where the time of its profiled passes went, since the last such order
  copy,      // a block of its cache
  close,     // that memory is not needed any more
  rehearse,  // gathers of a pass without the pass
  end,       // nothing more will come
};

// Numbers and lists of numbers, one behind the other, each list behind its length.
class MessageWriter {
 public:
  void begin(Order order) {
    bytes_.clear();
    add(static_cast<int64_t>(order));
  }
  void add(int64_t value) { append(&value, sizeof value); }
  template <class T>
  void add_list(std::span<const T> values) {
    add(std::ssize(values));
    append(values.data(), values.size_bytes());
  }
  void add_text(const std::string& text) { add_list(std::span<const char>(text)); }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  void append(const void* from, size_t count) {
    if (count == 0) return;
    bytes_.resize(bytes_.size() + count);
    std::memcpy(bytes_.data() + bytes_.size() - count, from, count);
  }

  std::vector<std::byte> bytes_;
};

class MessageReader {
 public:
  explicit MessageReader(std::span<const std::byte> bytes) : left_(bytes) {}

  int64_t number() {
    int64_t value = 0;
    take(&value, sizeof value);
    return value;
  }
  template <class T>
  void list(std::vector<T>* out) {
    out->resize(static_cast<size_t>(number()));
    take(out->data(), out->size() * sizeof(T));
  }
  std::string text() {
    std::vector<char> characters;
    list(&characters);
    return {characters.begin(), characters.end()};
  }

 private:
  void take(void* to, size_t count) {
    if (count == 0) return;
    std::memcpy(to, left_.data(), count);
    left_ = left_.subspan(count);
  }

  std::span<const std::byte> left_;
};

// What a session or scheduler needs on every board.
struct RunnerNeeds {
  int64_t tokens;     // the most of a pass
  int64_t positions;  // of a sequence
  KvType kv;
  int64_t blocks;  // of the cache
};

// On the first board: what a session or scheduler has on the others. Nobody, where the model is on one.
class Followers {
 public:
  Followers() = default;
  ~Followers() { close(); }
  Followers(const Followers&) = delete;
  Followers& operator=(const Followers&) = delete;

  // Where a model is shared. Errors: of any board, too little memory above all.
  Error open(Exchange* exchange, const RunnerNeeds& needs);
  void tell_pass(std::span<const Segment> segments, bool is_profiled);
  void tell_copy(int32_t from, int32_t to);
  // Where the time of the profiled passes went on every board, by rank, since this was asked last; `own` is what they
  // took here. Empty on one board.
  std::vector<BoardProfile> profiles(const Profile& own);

 private:
  void begin(Order order);
  void add_ropes(std::span<const RopeFrequencies> ropes);
  void close();

  Exchange* exchange_ = nullptr;
  int64_t id_ = 0;
  MessageWriter message_;
  std::vector<RopeFrequencies> ropes_;  // told last
};

// All boards' profiles, by rank; all call it alike.
std::vector<BoardProfile> profiles_of_all(Exchange& exchange, const Profile& own);

// A segment's frequencies, in the place of those before it.
void read_ropes(MessageReader& message, std::vector<RopeFrequencies>* last);

}  // namespace pinion
