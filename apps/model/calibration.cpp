// The texts that calibrate quantised weights.
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "apps/model/open.h"
#include "configs/families.h"
#include "engine/runtime/calibration.h"
#include "loader/checkpoint/model_folder.h"
#include "loader/files/json.h"
#include "loader/files/mapped_file.h"
#include "tokenizer/templates/chat_template.h"

namespace pinion {
namespace {

constexpr int64_t kAddedTokens = 64;  // to each beginning
constexpr int64_t kMaxTextBytes = int64_t{1} << 30;

// Texts of a model without a tokenizer begin with single ids, spread over the vocabulary.
Error add_single_ids(const std::string& folder, LoadOptions* load) {
  constexpr int64_t kTexts = 32;
  ModelConfig config;
  if (Error e = read_model_config(folder, &config)) return e;
  for (int64_t i = 0; i < kTexts; ++i) {
    load->calibration.push_back({{static_cast<int32_t>(i * config.vocab_size / kTexts)}, kAddedTokens});
  }
  return {};
}

Error add_windows(const Tokenizer& tokenizer, const std::string& text, LoadOptions* load) {
  TextIds ids;
  if (Error e = encode_with_prefix(tokenizer, text, &ids)) return e;
  for (CalibrationText& window : calibration_windows(ids.prefix, ids.ids)) {
    load->calibration.push_back(std::move(window));
  }
  return {};
}

// Messages by the folder's template, the last one with tools. A template that refuses them adds none.
void add_conversations(const std::string& folder, const Tokenizer& tokenizer, const nlohmann::ordered_json& beginnings,
                       LoadOptions* load) {
  std::shared_ptr<const ChatTemplate> chat_template;
  if (load_chat_template(folder, &chat_template) || !chat_template) return;
  const auto add = [&](const nlohmann::ordered_json& message, const nlohmann::ordered_json& tools) {
    Conversation conversation;
    conversation.messages.push_back({{"role", "user"}, {"content", message}});
    conversation.tools = tools;
    conversation.has_fixed_date = true;
    Prompt prompt;
    if (make_prompt(*chat_template, tokenizer, conversation, &prompt) || prompt.ids.empty()) return;
    load->calibration.push_back({std::move(prompt.ids), kAddedTokens});
  };
  for (const nlohmann::ordered_json& message : beginnings["messages"]) add(message, nullptr);
  add(beginnings["question"], beginnings["tools"]);
}

Error add_own_texts(const std::string& folder, const Tokenizer& tokenizer, LoadOptions* load) {
  nlohmann::ordered_json beginnings;
  if (Error e = parse_ordered_json(beginnings_text(), "configs/beginnings.json", &beginnings)) return e;
  for (const nlohmann::ordered_json& text : beginnings["texts"]) {
    TextIds ids;
    if (Error e = encode_with_prefix(tokenizer, text.get<std::string>(), &ids)) return e;
    ids.prefix.insert(ids.prefix.end(), ids.ids.begin(), ids.ids.end());
    if (!ids.prefix.empty()) load->calibration.push_back({std::move(ids.prefix), kAddedTokens});
  }
  add_conversations(folder, tokenizer, beginnings, load);
  for (const nlohmann::ordered_json& passage : beginnings["passages"]) {
    if (Error e = add_windows(tokenizer, passage.get<std::string>(), load)) return e;
  }
  return {};
}

}  // namespace

Error read_calibration(const RunOptions& run, const Tokenizer* tokenizer, LoadOptions* load) {
  const std::string_view source = calibration_source(run);
  std::shared_ptr<const Tokenizer> own;
  PackRecord record;
  if (Error e = read_pack_record(run.model, &record)) return e;
  if (!record.empty() && run.calibrate.empty()) return {};  // a packed model keeps its calibration
  if (source == kNoCalibration && !record["calibration"].empty()) {
    return error("packed otherwise; pack its source for this", run.model + ": --calibrate", record["calibration"],
                 "none");
  }
  if (source == kNoCalibration) return {};
  if (Error e = check_model_folder(run.model)) return e;
  if (!tokenizer) {
    if (Error e = load_tokenizer_if_any(run.model, &own); e && !run.calibrate.empty()) return e;
    tokenizer = own.get();
  }
  if (Error e = tokenizer ? add_own_texts(run.model, *tokenizer, load) : add_single_ids(run.model, load)) return e;
  if (source == kSelfCalibration) return {};
  std::string text;
  if (!tokenizer) return error("a calibration text needs a tokenizer", run.model);
  if (Error e = read_text_file(source, kMaxTextBytes, &text)) return e;
  const size_t texts = load->calibration.size();
  if (Error e = add_windows(*tokenizer, text, load)) return e;
  return load->calibration.size() == texts ? error("no text to calibrate with", std::string(source)) : Error{};
}

}  // namespace pinion
