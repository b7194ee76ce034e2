// Helpers for tests of the C interface, with handles that close themselves.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "apps/library/pinion.h"
#include "tests/apps/program.h"

namespace pinion {

template <auto close>
struct Closes {
  void operator()(auto* handle) const { close(handle); }
};

using OwnModel = std::unique_ptr<pinion_model, Closes<pinion_model_close>>;
using OwnSession = std::unique_ptr<pinion_session, Closes<pinion_session_close>>;
using OwnResult = std::unique_ptr<pinion_result, Closes<pinion_result_free>>;

inline void expect_ok(pinion_status status) { EXPECT_EQ(status, PINION_OK) << pinion_error_text(); }

// Opens a model without the user's cache.
inline OwnModel open_model_for_test(const std::string& folder, pinion_model_options options = {}) {
  options.size = sizeof options;
  options.no_cache = 1;
  pinion_model* model = nullptr;
  expect_ok(pinion_model_open(folder.c_str(), &options, &model));
  return OwnModel(model);
}

inline OwnSession open_session_for_test(const OwnModel& model, int64_t context = 0) {
  pinion_session* session = nullptr;
  expect_ok(pinion_session_open(model.get(), context, &session));
  return OwnSession(session);
}

inline std::vector<int32_t> taken(int32_t* ids, size_t count) {
  std::vector<int32_t> all(ids, ids + count);
  pinion_free(ids);
  return all;
}

inline std::string taken(char* text) {
  std::string all = text;
  pinion_free(text);
  return all;
}

inline std::vector<int32_t> tokens_of(const OwnModel& model, const std::string& text, bool add_special = true) {
  int32_t* ids = nullptr;
  size_t count = 0;
  expect_ok(pinion_tokenize(model.get(), text.data(), text.size(), add_special, &ids, &count));
  return taken(ids, count);
}

inline int64_t vocabulary(const OwnModel& model) {
  pinion_model_info info = {};
  info.size = sizeof info;
  expect_ok(pinion_model_describe(model.get(), &info));
  return info.vocab_size;
}

// Logits after the last id, or after each.
inline std::vector<float> logits_after(const OwnModel& model, pinion_session* session, std::span<const int32_t> ids,
                                       bool all = false) {
  std::vector<float> logits((all ? ids.size() : 1) * static_cast<size_t>(vocabulary(model)));
  expect_ok(pinion_session_evaluate(session, ids.data(), ids.size(), all, logits.data(), logits.size()));
  return logits;
}

inline pinion_generate_options generate_options(int64_t max_tokens) {
  static constexpr pinion_setting kGreedy = {"temperature", 0};
  pinion_generate_options options = {};
  options.size = sizeof options;
  options.max_tokens = max_tokens;
  options.settings = &kGreedy;
  options.setting_count = 1;
  return options;
}

inline OwnResult generate_in(pinion_session* session, std::span<const int32_t> prompt,
                             const pinion_generate_options& options) {
  pinion_result* result = nullptr;
  expect_ok(pinion_generate(session, prompt.data(), prompt.size(), &options, &result));
  return OwnResult(result);
}

inline std::vector<int32_t> ids_of(const OwnResult& result) { return {result->ids, result->ids + result->id_count}; }

}  // namespace pinion
