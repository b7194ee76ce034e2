#include "apps/golden/golden.h"

#include <nlohmann/json.hpp>

#include "apps/cli/output_file.h"
#include "apps/model/build.h"
#include "kernels/base/hash.h"

namespace pinion {
namespace {

// {prompt | prompt_ids, max_tokens}
Error read_prompt(JsonFields& fields, int64_t max_tokens, GoldenPrompt* out) {
  if (fields.has("prompt")) out->text = fields.text("prompt");
  out->ids = read_token_ids(fields, "prompt_ids");
  out->max_tokens = fields.integer("max_tokens", max_tokens, 0, kMaxGoldenTokens);
  if (!fields.error && !out->text && out->ids.empty()) return error("neither prompt nor prompt_ids", fields.where);
  return fields.error;
}

OrderedJson settings_json(const Golden& golden) {
  OrderedJson json = run_settings_json(golden);
  json.update(sampler_json(golden.sampler));
  json["dry_breakers"] = golden.sampler.dry_breakers;
  json["seed"] = golden.sampler.seed;
  return json;
}

// Without this check a misspelt optional field would count as absent.
Error refuse_unknown(JsonFields& fields) {
  if (const auto unknown = fields.unread(); !unknown.empty()) fields.fail(brief(unknown[0]), "unknown field");
  return fields.error;
}

// The index of a field's value in a list of names.
size_t read_choice(JsonFields& fields, std::string_view name, std::span<const std::string_view> values) {
  const std::string text = fields.text(name);
  const auto found = std::ranges::find(values, text);
  if (found != values.end()) return found - values.begin();
  fields.fail(std::string(name), "unknown value", joined({values.begin(), values.end()}), text);
  return 0;
}

Error read_settings(JsonFields settings, Golden* out) {
  out->run.load.quant = static_cast<Quant>(read_choice(settings, "quant", kQuantNames));
  out->run.kv = static_cast<KvType>(read_choice(settings, "kv", kKvNames));
  const bool has_head = !settings.text("head", "").empty();
  if (has_head) out->run.load.head = kHeadFormats[read_choice(settings, "head", kHeadNames)];
  out->run.load.keep = settings.texts("keep");
  out->calibration = settings.text("calibration", "");
  out->run.load.rotate = settings.boolean("rotate", false);  // old files are from before rotation
  read_sampler_settings(settings, &out->sampler);
  out->sampler.dry_breakers = read_token_ids(settings, "dry_breakers");
  out->sampler.seed = static_cast<uint64_t>(settings.integer("seed", 0, 0));
  return refuse_unknown(settings);
}

OrderedJson prompt_json(const GoldenPrompt& prompt, const GoldenAnswer& answer) {
  OrderedJson item;
  if (prompt.text) item["prompt"] = *prompt.text;
  item["prompt_ids"] = prompt.ids;
  item["max_tokens"] = prompt.max_tokens;
  item["ids"] = answer.ids;
  item["text"] = answer.text;
  item.update(logits_hash_json(answer));
  return item;
}

OrderedJson recorder_json(const Recorder& recorder) {
  return {{"version", recorder.version},
          {"commit", recorder.commit},
          {"compiler", recorder.compiler},
          {"cpu", recorder.cpu}};
}

// One prompt per line, so that a diff shows which prompt has changed.
std::string golden_text(const Golden& golden) {
  std::string text = "{\"recorded_by\": " + recorder_json(golden.recorder).dump() + ",\n\"weights_hash\": \"" +
                     golden.weights + "\",\n\"settings\": " + settings_json(golden).dump();
  text += ",\n\"prompts\": [";
  for (size_t i = 0; i < golden.prompts.size(); ++i) {
    text += (i > 0 ? ",\n" : "\n") + json_text(prompt_json(golden.prompts[i], golden.answers[i]));
  }
  return text + "\n]}\n";
}

}  // namespace

Recorder this_program() { return {PINION_VERSION, build_commit(), compiler_name(), cpu_name()}; }

OrderedJson run_settings_json(const Golden& golden) {
  return {{"quant", quant_name(golden.run)}, {"kv", kv_name(golden.run)},        {"head", head_name(golden.run)},
          {"keep", golden.run.load.keep},    {"rotate", golden.run.load.rotate}, {"calibration", golden.calibration}};
}

OrderedJson golden_head_json(const Golden& golden) {
  return {{"recorded_by", recorder_json(golden.recorder)},
          {"weights_hash", golden.weights},
          {"settings", run_settings_json(golden)}};
}

Error parse_golden_head(JsonFields& fields, Golden* out) {
  JsonFields recorder = fields.fields("recorded_by");
  const std::string older = fields.text("pinion", "");  // the version in the first files
  out->recorder = {recorder.text("version", older), recorder.text("commit", ""), recorder.text("compiler", ""),
                   recorder.text("cpu", "")};
  if (recorder.error) return recorder.error;
  if (Error e = read_settings(fields.fields("settings"), out)) return e;
  out->weights = fields.text("weights_hash", "");
  return fields.error;
}

OrderedJson logits_hash_json(const GoldenAnswer& answer) {
  return {{"logits_hash", answer.logits_hash}, {"logits_hash_by_8", answer.partial_hashes}};
}

GoldenAnswer golden_answer(const GenerateResult& result, std::string text) {
  GoldenAnswer answer = {result.ids, std::move(text), hash_text(result.logits_hash), {}};
  for (const uint64_t hash : result.hashes) answer.partial_hashes.push_back(hash_text(hash));
  return answer;
}

Error read_answer(JsonFields& fields, const char* ids_name, GoldenAnswer* out) {
  *out = {read_token_ids(fields, ids_name), fields.text("text", ""), fields.text("logits_hash"),
          fields.texts("logits_hash_by_8")};
  return fields.error;
}

Error parse_prompts(const Json& list, const std::string& where, int64_t max_tokens, std::vector<GoldenPrompt>* out) {
  if (!list.is_array()) return error("wrong type", where, "a list of prompts", brief(list));
  for (const Json& item : list) {
    GoldenPrompt& prompt = out->emplace_back();
    prompt.max_tokens = max_tokens;
    JsonFields fields{item, where + ": prompt " + std::to_string(out->size() - 1)};
    if (item.is_string()) {
      prompt.text = item.get<std::string>();
    } else if (Error e = read_prompt(fields, max_tokens, &prompt)) {
      return e;
    }
  }
  return {};
}

Error read_prompts(const std::string& path, int64_t max_tokens, std::vector<GoldenPrompt>* out) {
  std::string text;
  Json json;
  if (Error e = read_input(path, kMaxJsonBytes, &text)) return e;
  if (Error e = parse_json(text, input_name(path), &json)) return e;
  return parse_prompts(json, input_name(path), max_tokens, out);
}

Error parse_golden(const Json& file, const std::string& where, Golden* out) {
  JsonFields fields{file, where};
  if (Error e = parse_golden_head(fields, out)) return e;
  const Json* prompts = fields.find("prompts");
  if (!prompts || !prompts->is_array()) return error("no list of prompts", where);
  for (const Json& item : *prompts) {
    JsonFields prompt{item, where + ": prompt " + std::to_string(out->prompts.size())};
    if (Error e = read_prompt(prompt, 0, &out->prompts.emplace_back())) return e;
    if (Error e = read_answer(prompt, "ids", &out->answers.emplace_back())) return e;
    if (Error e = refuse_unknown(prompt)) return e;
  }
  return refuse_unknown(fields);
}

Error read_golden(const std::string& path, Golden* out) {
  Json json;
  if (Error e = read_json_file(path, &json)) return e;
  return parse_golden(json, path, out);
}

Error write_golden(const Golden& golden, const std::string& path) {
  return write_output_file(path, golden_text(golden));
}

}  // namespace pinion
