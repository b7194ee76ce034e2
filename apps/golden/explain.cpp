#include "apps/golden/explain.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "engine/forward/trace.h"
#include "engine/session/session.h"
#include "loader/files/json.h"

namespace pinion {
namespace {

// Where the ids part; where they do not, the last token that can be the first with other logits: the end of the first
// stretch whose hash differs.
size_t last_suspect(const GoldenAnswer& want, const GoldenAnswer& have) {
  const auto [w, h] = std::ranges::mismatch(want.ids, have.ids);
  const auto token = static_cast<size_t>(w - want.ids.begin());
  if (want.ids != have.ids) return token;
  const size_t last = token - std::min<size_t>(token, 1);
  if (want.hashes_on_way.empty()) return last;
  const auto [a, b] = std::ranges::mismatch(want.hashes_on_way, have.hashes_on_way);
  return std::min(last, static_cast<size_t>((a - want.hashes_on_way.begin() + 1) * kTokensPerHash - 1));
}

// A run that goes through the recorded tokens one by one.
struct Follower {
  Session* session;
  Trace trace;
  std::vector<float> logits;

  explicit Follower(Session* followed)
      : session(followed),
        trace(followed->model->config.layers),
        logits(static_cast<size_t>(followed->model->config.vocab_size)) {
    session->trace = &trace;
  }
  Error take(std::span<const int32_t> ids) { return evaluate(*session, ids, false, logits.data()); }
};

std::string top_five(const Subject& subject, const std::vector<float>& logits) {
  std::string text;
  for (const TokenLogprob& one : logprobs_of(logits, 0, 5).top) {
    std::array<char, 32> value;
    std::snprintf(value.data(), value.size(), " %.9g", static_cast<double>(logits[static_cast<size_t>(one.id)]));
    text += (text.empty() ? "" : ", ") + token_label(subject, {one.id}, 0) + value.data();
  }
  return text;
}

std::string first_difference_line(const Trace& a, const Trace& b, bool same_logits) {
  const int64_t layer = first_difference(a, b);
  return "    first difference: " +
         (layer >= 0    ? "layer " + std::to_string(layer)
          : same_logits ? "none: both are this build's arithmetic, the recording is of another"
                        : "the head") +
         "\n";
}

// What this way makes of a candidate for a place; nothing behind the last token.
std::string logprob_text(const std::vector<int32_t>& ids, size_t index, const std::vector<float>& logits) {
  if (index >= ids.size() || ids[index] >= std::ssize(logits)) return "";
  std::array<char, 48> value;
  std::snprintf(value.data(), value.size(), ", log probability %.4f",
                log_softmax_of(logits)(logits[static_cast<size_t>(ids[index])]));
  return value.data();
}

// The last of what was generated before a place.
std::string text_before(const Subject& subject, const std::vector<int32_t>& ids, size_t index) {
  constexpr size_t kTokens = 12;
  const auto before = std::span(ids).first(index).last(std::min(index, kTokens));
  return subject.has_tokenizer ? brief(Json(subject.decode(before))) : "[" + join_ids(before) + "]";
}

// `logits`: this way's at the place; none: they are not to be had.
std::string candidates_text(const Subject& subject, const GoldenAnswer& want, const GoldenAnswer& have, size_t index,
                            const std::vector<float>& logits) {
  const std::string token = "    token " + std::to_string(index);
  return "    after " + text_before(subject, want.ids, index) + "\n" + token +
         " recorded: " + token_label(subject, want.ids, index) + logprob_text(want.ids, index, logits) + "\n" + token +
         " now:      " + token_label(subject, have.ids, index) + logprob_text(have.ids, index, logits) + "\n";
}

}  // namespace

std::string token_label(const Subject& subject, const std::vector<int32_t>& ids, size_t index) {
  if (index >= ids.size()) return "the end";
  const std::string id = std::to_string(ids[index]);
  return subject.has_tokenizer ? id + " " + brief(Json(subject.token_text(ids[index]))) : id;
}

std::string explain(const Subject& subject, const GoldenAnswer& want, const GoldenAnswer& have) {
  return candidates_text(subject, want, have, std::min(last_suspect(want, have), want.ids.size()), {});
}

Error explain_here(const Subject& subject, const Runtime& runtime, bool bisect, const GoldenPrompt& prompt,
                   const GoldenAnswer& want, const GoldenAnswer& have, std::string* out) {
  std::unique_ptr<Session> here, defined;
  if (Error e = open_session(runtime, {.capacity = std::ssize(prompt.ids) + std::ssize(want.ids)}, &here)) return e;
  Team alone({});
  SessionOptions definition = {
      .kv = runtime.kv, .capacity = here->sequence.cache.capacity, .prefill_chunk = 1, .kernels = &scalar_kernels()};
  if (Error e = open_session(*runtime.model, alone, definition, &defined)) return e;

  Follower a(here.get()), b(defined.get());
  const size_t last = std::min(last_suspect(want, have), want.ids.size());
  std::string other;  // how the definition parts from this way
  size_t index = 0;
  for (std::span<const int32_t> next = prompt.ids;; ++index) {
    if (Error e = a.take(next)) return e;
    if (Error e = b.take(next)) return e;
    if (other.empty() && a.logits != b.logits) {
      other = "    from token " + std::to_string(index) +
              " on other logits than scalar on one thread, likeliest\n      this way: " + top_five(subject, a.logits) +
              "\n      scalar:   " + top_five(subject, b.logits) + "\n";
      if (bisect) other += first_difference_line(a.trace, b.trace, false);
    }
    if (index == last) break;
    next = std::span(want.ids).subspan(index, 1);
  }
  if (other.empty() && bisect) other = first_difference_line(a.trace, b.trace, true);
  *out = candidates_text(subject, want, have, index, a.logits) + other;
  return {};
}

}  // namespace pinion
