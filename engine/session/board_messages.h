// The messages from board 0 to the others, as bytes. All boards run the same build, so readers validate nothing.
#pragma once

#include <cstring>
#include <type_traits>

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

// Serialises values: plain ones as in memory, lists and texts behind their length, optional ones behind a flag.
class MessageWriter {
 public:
  template <class... T>
  void begin(BoardCommand command, const T&... values) {
    bytes_.clear();
    add(command, values...);
  }
  template <class... T>
  void add(const T&... values) {
    (put(values), ...);
  }
  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(bytes_)); }

 private:
  template <class T>
  void put(const T& value) {
    if constexpr (requires { value.has_value(); }) {
      put(value.has_value());
      if (value) put(*value);
    } else if constexpr (requires { value.size(); }) {
      put(std::ssize(value));
      if constexpr (std::is_trivially_copyable_v<std::remove_cvref_t<decltype(value[0])>>) {
        append(std::as_bytes(std::span(value)));
      } else {
        for (const auto& item : value) put(item);
      }
    } else {
      append(std::as_bytes(std::span(&value, 1)));
    }
  }
  void append(std::span<const std::byte> bytes) {
    bytes_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }

  std::string bytes_;
};

// Reads the values in the order in which they were added.
class MessageReader {
 public:
  explicit MessageReader(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <class... T>
  void read(T&... values) {
    (get(values), ...);
  }
  template <class T>
  T read() {
    T value{};
    get(value);
    return value;
  }

 private:
  template <class T>
  void get(T& value) {
    if constexpr (requires { value.has_value(); }) {
      value.reset();
      if (read<bool>()) get(value.emplace());
    } else if constexpr (requires { value.size(); }) {
      value.resize(read<int64_t>());
      for (auto& item : value) get(item);
    } else {
      std::memcpy(&value, rest_.data(), sizeof value);
      rest_ = rest_.subspan(sizeof value);
    }
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

// Board 0's control of a session's or scheduler's counterparts (engine/runtime/follow.h). One board: does nothing.
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
  template <class... T>
  void send(BoardCommand command, const T&... values);
  void add_ropes(std::span<const RopeFrequencies> ropes);
  void close();

  Exchange* exchange_ = nullptr;
  int64_t id_ = 0;
  MessageWriter message_;
  std::vector<RopeFrequencies> ropes_;  // sent last
};

// Profiles of all boards, by rank; own: of this board. Collective.
std::vector<BoardProfile> profiles_of_all(Exchange& exchange, const Profile& own);

// Reads the frequencies of a segment into `last`, those of the segment before it, which a message may repeat.
void read_ropes(MessageReader& message, std::vector<RopeFrequencies>* last);

// The load options that affect results. Board 0 sends them; the other boards replace their own by them.
void send_load_options(Exchange& exchange, const LoadOptions& options);
void read_load_options(MessageReader& message, LoadOptions* out);

}  // namespace pinion
