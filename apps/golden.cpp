// pinion golden: records what a model answers to some prompts, with a hash over the bits of every logits vector, and
// checks later, elsewhere, with other kernels or threads, that the same comes out.
#include <algorithm>
#include <limits>

#include "apps/commands.h"
#include "apps/output_file.h"
#include "engine/generate.h"
#include "loader/json.h"
#include "tokenizer/tokenizer.h"

namespace pinion {
namespace {

struct Options {
  RunOptions run;
  SamplingFlags sampling;
  std::string prompts, out, golden;
  int64_t max_tokens = 64;
};

struct Prompt {
  std::optional<std::string> text;  // none: ids were given
  std::vector<int32_t> ids;
  int64_t max_tokens = 0;
};

struct Answer {
  std::vector<int32_t> ids;
  std::string text;
  std::string logits_hash;
};

// The content of a golden file.
struct Golden {
  RunOptions run;  // quant, kv and keep of it
  SamplerOptions sampler;
  std::vector<Prompt> prompts;
  std::vector<Answer> answers;
};

constexpr int64_t kMaxTokens = 1 << 30;

std::vector<int32_t> read_ids(JsonFields& fields, std::string_view name) {
  const std::vector<int64_t> wide = fields.integers(name, 0, std::numeric_limits<int32_t>::max());
  return {wide.begin(), wide.end()};
}

// A prompt is a string or an object {prompt | prompt_ids, max_tokens}.
Error read_prompt(const Json& json, const std::string& where, int64_t max_tokens, Prompt* out) {
  out->max_tokens = max_tokens;
  if (json.is_string()) {
    out->text = json.get<std::string>();
    return {};
  }
  JsonFields fields{json, where};
  if (fields.has("prompt")) out->text = fields.text("prompt");
  out->ids = read_ids(fields, "prompt_ids");
  out->max_tokens = fields.integer("max_tokens", max_tokens, 0, kMaxTokens);
  if (!fields.error && !out->text && out->ids.empty()) return error("neither prompt nor prompt_ids", where);
  return fields.error;
}

Error read_prompts(const Options& options, std::vector<Prompt>* out) {
  Json json;
  if (Error e = read_json_file(options.prompts, &json)) return e;
  if (!json.is_array()) return error("wrong type", options.prompts, "a list of prompts", brief(json));
  for (const Json& item : json) {
    const std::string where = options.prompts + ": prompt " + std::to_string(out->size());
    if (Error e = read_prompt(item, where, options.max_tokens, &out->emplace_back())) return e;
  }
  return {};
}

OrderedJson settings_json(const Golden& golden) {
  return {{"quant", golden.run.quant},     {"kv", kv_name(golden.run)},
          {"keep", golden.run.keep},       {"temperature", golden.sampler.temperature},
          {"top_k", golden.sampler.top_k}, {"top_p", golden.sampler.top_p},
          {"min_p", golden.sampler.min_p}, {"repetition_penalty", golden.sampler.repetition_penalty},
          {"seed", golden.sampler.seed}};
}

Error read_settings(JsonFields settings, Golden* out) {
  out->run.quant = settings.text("quant");
  out->run.kv = settings.text("kv");
  out->run.keep = settings.texts("keep");
  out->sampler.temperature = static_cast<float>(settings.number("temperature", 0.0, 0, 100));
  out->sampler.top_k = static_cast<int32_t>(settings.integer("top_k", 0, 0, kMaxTokens));
  out->sampler.top_p = static_cast<float>(settings.number("top_p", 1.0, 0, 1));
  out->sampler.min_p = static_cast<float>(settings.number("min_p", 0.0, 0, 1));
  out->sampler.repetition_penalty = static_cast<float>(settings.number("repetition_penalty", 1.0, 0.01, 100));
  out->sampler.seed = static_cast<uint64_t>(settings.integer("seed", 0, 0));
  if (settings.error) return settings.error;
  if (out->run.quant != "none" && out->run.quant != "w8a8") {
    return error("unknown quant", settings.where, "none or w8a8", out->run.quant);
  }
  if (out->run.kv != "f32" && out->run.kv != "bf16")
    return error("unknown kv", settings.where, "f32 or bf16", out->run.kv);
  return {};
}

OrderedJson prompt_json(const Prompt& prompt, const Answer& answer) {
  OrderedJson item;
  if (prompt.text) item["prompt"] = *prompt.text;
  item["prompt_ids"] = prompt.ids;
  item["max_tokens"] = prompt.max_tokens;
  item["ids"] = answer.ids;
  item["text"] = answer.text;
  item["logits_hash"] = answer.logits_hash;
  return item;
}

// One prompt a line, so that a change shows in a diff where it is.
std::string golden_text(const Golden& golden) {
  std::string text = "{\"pinion\": \"" PINION_VERSION "\",\n\"settings\": " + settings_json(golden).dump();
  text += ",\n\"prompts\": [";
  for (size_t i = 0; i < golden.prompts.size(); ++i) {
    text +=
        (i > 0 ? ",\n" : "\n") +
        prompt_json(golden.prompts[i], golden.answers[i]).dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  }
  return text + "\n]}\n";
}

Error read_golden(const std::string& path, Golden* out) {
  Json json;
  if (Error e = read_json_file(path, &json)) return e;
  JsonFields fields{json, path};
  if (Error e = read_settings(fields.fields("settings"), out)) return e;
  const Json* prompts = fields.find("prompts");
  if (!prompts || !prompts->is_array()) return error("no list of prompts", path);
  for (const Json& item : *prompts) {
    const std::string where = path + ": prompt " + std::to_string(out->prompts.size());
    if (Error e = read_prompt(item, where, 0, &out->prompts.emplace_back())) return e;
    JsonFields answer{item, where};
    out->answers.push_back({read_ids(answer, "ids"), answer.text("text", ""), answer.text("logits_hash")});
    if (answer.error) return answer.error;
  }
  return {};
}

Error load_tokenizer_if_any(const std::string& folder, std::shared_ptr<const Tokenizer>* out) {
  if (!has_tokenizer(folder)) return {};
  return load_tokenizer(folder, out);
}

// Every answer comes from an empty cache, so that it does not depend on the prompts before it.
Error answer_prompt(const Runtime& runtime, const Golden& golden, const RunOptions& run, const Prompt& prompt,
                    const Tokenizer* tokenizer, Answer* out) {
  std::unique_ptr<Session> session;
  if (Error e = open_session(runtime, run, std::ssize(prompt.ids) + prompt.max_tokens, &session)) return e;
  GenerateResult result;
  const GenerateOptions options{prompt.max_tokens, golden.sampler, false};
  if (Error e = generate(*session, prompt.ids, options, [](int32_t) { return true; }, &result)) return e;
  *out = {result.ids, tokenizer ? decode(*tokenizer, result.ids) : "", hash_text(result.logits_hash)};
  return {};
}

int run_record(const Options& options) {
  Golden golden;
  golden.run = options.run;
  apply_flags(options.sampling, &golden.sampler);
  if (Error e = read_prompts(options, &golden.prompts)) return fail(e);
  if (Error e = check_folder(options.run.model)) return fail(e);
  std::shared_ptr<const Tokenizer> tokenizer;
  if (Error e = load_tokenizer_if_any(options.run.model, &tokenizer)) return fail(e);
  Runtime runtime;
  if (Error e = open_runtime(options.run, &runtime)) return fail(e);
  for (Prompt& prompt : golden.prompts) {
    if (prompt.text && !tokenizer) return fail(error("no tokenizer.json or tokenizer.model", options.run.model));
    if (prompt.text) prompt.ids = encode(*tokenizer, *prompt.text);
    Answer answer;
    if (Error e = answer_prompt(runtime, golden, options.run, prompt, tokenizer.get(), &answer)) return fail(e);
    golden.answers.push_back(std::move(answer));
  }
  OutputFile file;
  const std::string text = golden_text(golden);
  if (Error e = file.open(options.out)) return fail(e);
  if (Error e = file.write(text.data(), text.size())) return fail(e);
  if (Error e = file.finish()) return fail(e);
  print("recorded " + std::to_string(golden.prompts.size()) + " prompts in " + options.out + "\n");
  return kSuccess;
}

// "17 \" the\"", or what stands in its place after the last token.
std::string token_label(const std::vector<int32_t>& ids, size_t index, const Tokenizer* tokenizer) {
  if (index >= ids.size()) return "the end";
  const std::string id = std::to_string(ids[index]);
  return tokenizer ? id + " " + OrderedJson(token_text(*tokenizer, ids[index])).dump() : id;
}

Error compare(const std::string& where, const Answer& want, const Answer& have, const Tokenizer* tokenizer) {
  const auto [w, h] = std::ranges::mismatch(want.ids, have.ids);
  if (w != want.ids.end() || h != have.ids.end()) {
    const size_t index = static_cast<size_t>(w - want.ids.begin());
    return error("token " + std::to_string(index) + " differs", where, token_label(want.ids, index, tokenizer),
                 token_label(have.ids, index, tokenizer));
  }
  if (tokenizer && want.text != have.text) return error("the text differs", where, want.text, have.text);
  if (want.logits_hash == have.logits_hash) return {};
  return error("same tokens, but the bits of the logits differ", where, want.logits_hash, have.logits_hash);
}

int run_check(const Options& options) {
  Golden golden;
  if (Error e = read_golden(options.golden, &golden)) return fail(e);
  if (golden.prompts.empty()) return fail(error("no prompts to check", options.golden));
  RunOptions run = options.run;
  run.quant = golden.run.quant;
  run.kv = golden.run.kv;
  run.keep = golden.run.keep;
  if (Error e = check_folder(run.model)) return fail(e);
  std::shared_ptr<const Tokenizer> tokenizer;
  if (Error e = load_tokenizer_if_any(run.model, &tokenizer)) return fail(e);
  Runtime runtime;
  if (Error e = open_runtime(run, &runtime)) return fail(e);
  for (size_t i = 0; i < golden.prompts.size(); ++i) {
    const std::string where = options.golden + ": prompt " + std::to_string(i);
    const Prompt& prompt = golden.prompts[i];
    if (prompt.text && tokenizer && encode(*tokenizer, *prompt.text) != prompt.ids) {
      return fail(error("the prompt's token ids differ", where, join_ids(prompt.ids),
                        join_ids(encode(*tokenizer, *prompt.text))));
    }
    Answer answer;
    if (Error e = answer_prompt(runtime, golden, run, prompt, tokenizer.get(), &answer)) return fail(e);
    if (Error e = compare(where, golden.answers[i], answer, tokenizer.get())) return fail(e);
    print("OK prompt " + std::to_string(i) + ": " + std::to_string(answer.ids.size()) + " tokens, logits " +
          answer.logits_hash + "\n");
  }
  return kSuccess;
}

}  // namespace

Run setup_golden(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.require_subcommand(1);
  CLI::App* record = app.add_subcommand("record", "Run prompts and record what comes out");
  record->footer("Example: pinion golden record --model DIR --prompts F.json --out G.json --quant w8a8");
  add_run_options(*record, &options->run);
  record->add_option("--prompts", options->prompts, "A JSON list of texts or {prompt | prompt_ids, max_tokens}")
      ->required()
      ->type_name("F.json");
  record->add_option("--out", options->out, "The golden file to write")->required()->type_name("G.json");
  record->add_option("--max-tokens", options->max_tokens, "Tokens for a prompt that does not say")
      ->check(in_range(0, kMaxTokens))
      ->type_name("N")
      ->capture_default_str();
  add_sampling_options(*record, &options->sampling);

  CLI::App* check = app.add_subcommand("check", "Run them again with the recorded settings; any difference fails");
  check->footer("Example: pinion golden check --model DIR --golden G.json --threads 3 --kernels scalar");
  add_model_option(*check, &options->run)->required();
  add_threads_option(*check, &options->run);
  add_speed_options(*check, &options->run);
  add_cache_option(*check, &options->run);
  check->add_option("--golden", options->golden, "The golden file")->required()->type_name("G.json");
  return [options, record] { return record->parsed() ? run_record(*options) : run_check(*options); };
}

}  // namespace pinion
