// Models for chats, and parsing of a chat's output.
#pragma once

#include <regex>

#include "tests/apps/program.h"

namespace pinion {

struct Figures {
  int prefilled = -1, reused = -1, generated = -1;
};

// The figures of each /stats.
inline std::vector<Figures> figures(const std::string& out) {
  static const std::regex kPattern("prompt +(\\d+) tokens at [^,]*, (\\d+) reused\nanswer +(\\d+) tokens at ");
  std::vector<Figures> list;
  for (std::sregex_iterator match(out.begin(), out.end(), kPattern), end; match != end; ++match) {
    list.push_back({std::stoi((*match)[1]), std::stoi((*match)[2]), std::stoi((*match)[3])});
  }
  return list;
}

// The stories model with a template. It was not trained on chats, but no test depends on its answers.
struct ChatModel : Folder {
  ChatModel() {
    copy_stories(*this);
    write_file(path / "chat_template.jinja",
               "{{ bos_token }}{% for m in messages %}{% if 'refuse' in m.content %}"
               "{{ raise_exception('no such role') }}{% endif %}{{ m.content }}\n{% endfor %}");
  }
};

inline Outcome chat(const Folder& model, const std::string& input, const std::vector<std::string>& options = {},
                    int status = 0) {
  std::vector<std::string> arguments = {"chat", "--model", model.path};
  if (std::ranges::find(options, "--max-tokens") == options.end()) {
    arguments.insert(arguments.end(), {"--max-tokens", "12"});
  }
  arguments.insert(arguments.end(), options.begin(), options.end());
  const Outcome outcome = run_pinion(arguments, input);
  EXPECT_EQ(outcome.status, status) << outcome.err;
  return outcome;
}

// The stories model with its full stop as the end of a thought, which the template opens.
struct ThinkingModel : Folder {
  explicit ThinkingModel(bool special) {
    copy_stories(*this);
    json tokenizer = read_json(path / "tokenizer.json");
    json& vocabulary = tokenizer["model"]["vocab"];
    vocabulary["</think>"] = vocabulary["."];
    vocabulary.erase(".");
    tokenizer["added_tokens"].push_back({{"id", vocabulary["</think>"]},
                                         {"content", "</think>"},
                                         {"single_word", false},
                                         {"lstrip", false},
                                         {"rstrip", false},
                                         {"normalized", false},
                                         {"special", special}});
    write_file(path / "tokenizer.json", tokenizer.dump());
    write_file(path / "chat_template.jinja",
               "{{ bos_token }}{% for m in messages %}{{ m.content }}\n{% endfor %}"
               "{{ 'Once' if enable_thinking is false else '<think>\n' }}");
  }
};

}  // namespace pinion
