// The golden file, recorded and checked with a model that runs here, or with that of a running `pinion serve`.
#pragma once

#include "apps/cli/common.h"
#include "engine/session/continuation.h"

namespace pinion {

// --- The golden file: settings, prompts and a model's answers, one prompt per line

struct GoldenPrompt {
  std::optional<std::string> text;  // none: the prompt was given as ids
  std::vector<int32_t> ids;
  int64_t max_tokens = 0;
};

struct GoldenAnswer {
  std::vector<int32_t> ids;
  std::string text;
  std::string logits_hash;                  // over the bits of every logits vector that a token was drawn from
  std::vector<std::string> partial_hashes;  // the hash after every kTokensPerHash tokens; empty in old files
};

constexpr int64_t kTokensPerHash = 8;
constexpr int64_t kMaxGoldenTokens = 1 << 30;

// The program and CPU that recorded the file.
struct Recorder {
  std::string version, commit, compiler, cpu;
};
Recorder this_program();

struct Golden {
  Recorder recorder;
  RunOptions run;           // settings that change the results
  std::string weights;      // hash over the packed matrices; empty in old files
  std::string calibration;  // name of the calibration texts; empty: none
  SamplerOptions sampler;
  std::vector<GoldenPrompt> prompts;
  std::vector<GoldenAnswer> answers;
};

// {"quant", "kv", "head", "keep", "rotate", "calibration"}
OrderedJson run_settings_json(const Golden& golden);

// The fields of a file before its prompts: {"recorded_by", "weights_hash", "settings"}; sampling settings are optional.
OrderedJson golden_head_json(const Golden& golden);
Error parse_golden_head(JsonFields& fields, Golden* out);

// Reads the ids from the field `ids_name`, and "text", "logits_hash" and "logits_hash_by_8".
Error read_answer(JsonFields& fields, const char* ids_name, GoldenAnswer* out);
OrderedJson logits_hash_json(const GoldenAnswer& answer);  // the last two fields
GoldenAnswer golden_answer(const GenerateResult& result, std::string text);

// A JSON list of texts or {prompt | prompt_ids, max_tokens}. `max_tokens` is the default.
Error read_prompts(const std::string& path, int64_t max_tokens, std::vector<GoldenPrompt>* out);
Error parse_prompts(const nlohmann::json& list, const std::string& where, int64_t max_tokens,
                    std::vector<GoldenPrompt>* out);

Error read_golden(const std::string& path, Golden* out);
Error parse_golden(const nlohmann::json& file, const std::string& where, Golden* out);
Error write_golden(const Golden& golden, const std::string& path);

// --- Recording and checking

struct Subject {
  std::string name;           // for messages: the folder or the address
  bool has_tokenizer = true;  // without one, prompts are ids and answers have no text
  int64_t context = 0;        // maximum number of tokens of prompt and answer; 0: only the model's own limit
  std::function<Error(const std::string& text, bool adds_special, std::vector<int32_t>* ids)> encode = {};
  std::function<std::string(std::span<const int32_t> ids)> decode = {};
  std::function<std::string(int32_t id)> token_text = {};
  // The answer's bits do not depend on earlier prompts.
  std::function<Error(const Golden& golden, const GoldenPrompt& prompt, GoldenAnswer* out)> answer = {};
};

// The runtime must outlive the subject, and may be opened later.
Subject model_subject(const Runtime& runtime, const std::string& folder, std::shared_ptr<const Tokenizer> tokenizer);

struct ServerOptions {
  std::string url;       // may end in /v1
  std::string key_file;  // file whose first key is sent; empty: none
};

// Connects to a server. *served gets the fields of a golden file that describe its build, weights and settings.
Error open_server(const ServerOptions& options, Golden* served, Subject* out);

// Hash over the packed matrices, the same on every machine. Empty if the model is divided among boards.
std::string weights_hash(const Model& model);

// Result of one prompt run in one way.
struct CheckResult {
  std::string way;  // "kernels avx2, threads 1", or the server's address
  size_t prompt = 0;
  std::string prompt_text;  // its beginning, quoted
  size_t tokens = 0;
  double seconds = 0;
  Error difference;         // empty: none
  std::string explanation;  // lines of text about the difference
};

struct CheckOptions {
  RunOptions run;
  ServerOptions server;
  std::string golden;  // the file
  std::string junit;   // output file for JUnit XML; empty: none
  bool matrix = false;
  bool bisect = false;
  std::function<void(const CheckResult&)> shown = {};  // called after each prompt
};

// An error of a single prompt becomes that prompt's difference.
Error check_golden(const CheckOptions& options, std::vector<CheckResult>* out);

Error junit_xml(const std::vector<CheckResult>& results, std::string* out);

}  // namespace pinion
