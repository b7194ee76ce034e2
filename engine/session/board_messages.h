// The messages that board 0 sends to the other boards, as bytes. All boards run the same build, so readers validate
// nothing.
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
#include "engine/model/load_options.h"
#include "kernels/base/error.h"

namespace pinion {

enum class BoardCommand : int64_t {
  load,          // load the model, with the sent options
  open,          // allocate the memory of a session or scheduler
  pass,          // run one of its passes
  profile,       // exchange the profiles since the last such command
  copy,          // copy a block of its cache
  close,         // free its memory
  time_gathers,  // measure the gathers of a pass without computation
  end,           // leave run_follower()
};

// Serialises numbers and lists; the length of a list precedes its elements.
class MessageWriter {
 public:
  void begin(BoardCommand command) {
    bytes_.clear();
    add(static_cast<int64_t>(command));
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

// Reads the fields in the order in which they were added.
class MessageReader {
 public:
  explicit MessageReader(std::span<const std::byte> bytes) : rest_(bytes) {}

  int64_t number() {
    int64_t value = 0;
    take(&value, sizeof value);
    return value;
  }
  template <class T>
  void list(std::vector<T>* out) {
    out->resize(number());
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
    std::memcpy(to, rest_.data(), count);
    rest_ = rest_.subspan(count);
  }

  std::span<const std::byte> rest_;
};

// Capacity of a session or scheduler, the same on every board.
struct RunnerSize {
  int64_t tokens;     // maximum of a pass
  int64_t positions;  // maximum of a sequence
  KvType kv;
  int64_t blocks;  // of the cache
};

// On board 0: controls the counterparts of a session or scheduler on the other boards (engine/runtime/follow.h). Does
// nothing for a model on one board.
class Followers {
 public:
  Followers() = default;
  ~Followers() { close(); }
  Followers(const Followers&) = delete;
  Followers& operator=(const Followers&) = delete;

  // exchange: null on one board. Returns the error of any board, for example too little memory.
  Error open(Exchange* exchange, const RunnerSize& size);
  void send_pass(std::span<const Segment> segments, bool is_profiled);
  void send_copy(int32_t from, int32_t to);
  // Profiles of all boards since the last call, by rank; own: of this board. Empty on one board.
  std::vector<BoardProfile> profiles(const Profile& own);

 private:
  void begin(BoardCommand command);
  void add_ropes(std::span<const RopeFrequencies> ropes);
  void close();

  Exchange* exchange_ = nullptr;
  int64_t id_ = 0;
  MessageWriter message_;
  std::vector<RopeFrequencies> ropes_;  // sent last
};

// Profiles of all boards, by rank; own: of this board. Collective.
std::vector<BoardProfile> profiles_of_all(Exchange& exchange, const Profile& own);

// Reads the frequencies of a segment. last: the frequencies of the segment before it, which the message may repeat;
// replaced by those of this segment.
void read_ropes(MessageReader& message, std::vector<RopeFrequencies>* last);

// The load options that affect results. Board 0 sends them; the other boards replace their own by them.
void send_load_options(Exchange& exchange, const LoadOptions& options);
void read_load_options(MessageReader& message, LoadOptions* out);

}  // namespace pinion
