// pinion tokenize and detokenize: text to ids and back, one at a time or a JSON line each. They need nothing of a model
// but its tokenizer files.
#include "tokenizer/tokens/tokenizer.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "loader/files/json.h"
#include "tokenizer/tokens/unicode.h"

namespace pinion {
namespace {

struct Options {
  RunOptions run;
  std::optional<std::string> text, ids;
  bool no_special = false;
  bool keep_special = false;
  bool json = false;
  bool jsonl = false;
};

// `answer` maps the JSON value of a line to that of the line printed for it.
int run_lines(const std::function<Error(const Json&, Json*)>& answer) {
  std::string line;
  Error failure;
  for (int64_t number = 1; read_line(&line, &failure); ++number) {
    const std::string where = "standard input, line " + std::to_string(number);
    Json question, reply;
    if (Error e = parse_json(to_utf8(line), where, &question)) return fail(e);
    if (Error e = answer(question, &reply)) {
      e.where = where;
      return fail(e);
    }
    print_json(reply);
  }
  return failure ? fail(failure) : kSuccess;
}

std::vector<std::string> token_texts(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  std::vector<std::string> texts;
  for (const int32_t id : ids) texts.push_back(token_text(tokenizer, id));
  return texts;
}

Error read_ids(const Json& json, std::vector<int32_t>* out) {
  out->clear();
  if (!json.is_array()) return error("wrong type", "", "a list of token ids", brief(json));
  for (const Json& item : json) {
    const bool fits = item.is_number_integer() && item >= 0 && item <= std::numeric_limits<int32_t>::max();
    if (!fits) return error("no token id", "", "a number from 0", brief(item));
    out->push_back(item.get<int32_t>());
  }
  return {};
}

int run_tokenize(const Options& options) {
  std::shared_ptr<const Tokenizer> tokenizer;
  if (Error e = check_folder(options.run.model)) return fail(e);
  if (Error e = load_tokenizer(options.run.model, &tokenizer)) return fail(e);
  const EncodeOptions encoding{.add_special = !options.no_special};
  if (options.jsonl) {
    return run_lines([&](const Json& question, Json* reply) -> Error {
      if (!question.is_string()) return error("wrong type", "", "a string", brief(question));
      std::vector<int32_t> ids;
      if (Error e = encode(*tokenizer, question.get_ref<const std::string&>(), encoding, &ids)) return e;
      *reply = ids;
      return {};
    });
  }
  std::string text;
  if (options.text) {
    text = *options.text;
  } else if (Error e = read_standard_input(kMaxTextBytes, &text)) {
    return fail(e);
  }
  std::vector<int32_t> ids;
  if (Error e = encode(*tokenizer, text, encoding, &ids)) return fail(e);
  if (options.json) {
    print_json({{"ids", ids}, {"tokens", token_texts(*tokenizer, ids)}});
  } else {
    print(join_ids(ids) + "\n");
  }
  return kSuccess;
}

Error check_ids(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  const int32_t count = vocab_size(tokenizer);
  const auto outside = std::ranges::find_if(ids, [&](int32_t id) { return id >= count; });
  if (outside == ids.end()) return {};
  return error("outside the vocabulary", "token id", "0 to " + std::to_string(count - 1), std::to_string(*outside));
}

int run_detokenize(const Options& options) {
  std::vector<int32_t> ids;
  if (options.ids) {
    if (Error e = parse_ids(*options.ids, &ids)) return fail_usage("--ids: " + e.message());
  }
  std::shared_ptr<const Tokenizer> tokenizer;
  if (Error e = check_folder(options.run.model)) return fail(e);
  if (Error e = load_tokenizer(options.run.model, &tokenizer)) return fail(e);
  if (options.jsonl) {
    return run_lines([&](const Json& question, Json* reply) -> Error {
      if (Error e = read_ids(question, &ids)) return e;
      if (Error e = check_ids(*tokenizer, ids)) return e;
      *reply = decode(*tokenizer, ids, !options.keep_special);
      return {};
    });
  }
  if (!options.ids) {
    std::string text;
    if (Error e = read_standard_input(kMaxTextBytes, &text)) return fail(e);
    if (Error e = parse_ids(text, &ids)) return fail(e);
  }
  if (Error e = check_ids(*tokenizer, ids)) return fail(e);
  const std::string text = decode(*tokenizer, ids, !options.keep_special);
  if (options.json) {
    print_json({{"text", text}});
  } else {
    print(text + "\n");
  }
  return kSuccess;
}

}  // namespace

Run setup_tokenize(Command app) {
  auto options = std::make_shared<Options>();
  add_model_option(app, &options->run).required();
  Option text = app.add_option("--text", options->text, "The text (default: standard input, byte for byte)");
  text.type_name("TEXT");
  app.add_flag("--no-special", options->no_special, "Add no BOS and EOS");
  app.add_flag("--json", options->json, "Print ids and tokens as a JSON object");
  app.add_flag("--jsonl", options->jsonl, "A JSON string per line in, a JSON list of ids per line out").excludes(text);
  return {[options] { return run_tokenize(*options); }};
}

Run setup_detokenize(Command app) {
  auto options = std::make_shared<Options>();
  add_model_option(app, &options->run).required();
  Option ids = app.add_option("--ids", options->ids, "Token ids: 1,2,3 (default: standard input)");
  ids.type_name("LIST");
  app.add_flag("--special", options->keep_special, "Show special tokens");
  app.add_flag("--json", options->json, "Print the text as a JSON object");
  app.add_flag("--jsonl", options->jsonl, "A JSON list of ids per line in, a JSON string per line out").excludes(ids);
  return {[options] { return run_detokenize(*options); }};
}

}  // namespace pinion
