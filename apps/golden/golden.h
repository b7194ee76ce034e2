// Recording and checking of golden files, with the model that does it: one that runs here, or one behind a running
// `pinion serve`, which is asked over HTTP.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "apps/golden/file.h"
#include "tokenizer/tokens/tokenizer.h"

namespace pinion {

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

void add_server_options(Command app, ServerOptions* options);

// Connects to a server. *served gets the fields of a golden file that describe its build, weights and settings. Errors:
// no server, a server of another kind, a missing or wrong key.
Error open_server(const ServerOptions& options, Golden* served, Subject* out);

// Fails unless a server can reproduce the recording: same weights, same settings that change the results.
Error check_served(const Golden& recorded, const Golden& served, const std::string& where);

// Fills in the ids of the prompts, and the answers.
Error record(const Subject& subject, Golden* golden);

// Hash over the packed matrices, the same on every machine. Empty if the model is divided among boards.
std::string weights_hash(const Model& model);

struct CheckOptions {
  RunOptions run;
  ServerOptions server;
  std::string golden;  // the file
  std::string junit;   // output file for JUnit XML; empty: none
  bool matrix = false;
  bool bisect = false;
};

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

// Calls `shown` after each prompt. An error of a single prompt becomes that prompt's difference.
Error check_golden(const CheckOptions& options, const std::function<void(const CheckResult&)>& shown,
                   std::vector<CheckResult>* out);

std::string junit_xml(const std::vector<CheckResult>& results);

}  // namespace pinion
