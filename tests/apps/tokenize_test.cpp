// pinion tokenize, detokenize and template: round trips, prompts of conversations, refused input.
#include "tests/apps/program.h"

namespace pinion {
namespace {

TEST(Tokenize, TextAndInputRoundTrip) {
  const json story = read_json(kStories + "/expected.json")["generations"][0];
  const std::string prompt = story["prompt"];
  const std::string ids = story["prompt_ids"].dump();
  const std::string list = ids.substr(1, ids.size() - 2) + "\n";
  EXPECT_EQ(run_pinion({"tokenize", "--model", kStories, "--text", prompt}).out, list);
  EXPECT_EQ(run_pinion({"tokenize", "--model", kStories}, prompt).out, list);
  EXPECT_EQ(run_pinion({"detokenize", "--model", kStories, "--ids", ids}).out, prompt + "\n");
  EXPECT_EQ(run_pinion({"detokenize", "--model", kStories}, list).out, prompt + "\n");
}

TEST(Tokenize, JsonAndNoSpecial) {
  const json all = run_json({"tokenize", "--model", kStories, "--text", "Once", "--json"});
  const json bare = run_json({"tokenize", "--model", kStories, "--text", "Once", "--no-special", "--json"});
  EXPECT_EQ(all["tokens"][0], "<s>");
  EXPECT_EQ(all["ids"].size(), bare["ids"].size() + 1);
  EXPECT_EQ(run_json({"detokenize", "--model", kStories, "--ids", all["ids"].dump(), "--json"})["text"], "Once");
}

TEST(Tokenize, JsonLinesRoundTrip) {
  const std::vector<std::string> texts = {
      "", "Hello", "two\nlines", "tab\t\"quoted\"", "caf\u00e9 \u4f60\u597d \U0001f600", "  spaces  "};
  std::string lines;
  for (const std::string& text : texts) lines += json(text).dump() + "\n";
  const Outcome ids = run_pinion({"tokenize", "--model", kStories, "--jsonl"}, lines);
  EXPECT_EQ(ids.status, 0) << ids.err;
  const Outcome back = run_pinion({"detokenize", "--model", kStories, "--jsonl"}, ids.out);
  EXPECT_EQ(back.status, 0) << back.err;
  EXPECT_EQ(back.out, [&] {
    std::string expected;
    for (const std::string& text : texts) expected += json(text).dump() + "\n";
    return expected;
  }());
}

TEST(Tokenize, BadLinesAreNamed) {
  expect_failure(run_pinion({"tokenize", "--model", kStories, "--jsonl"}, "\"a\"\n{\n"), 1, "line 2");
  expect_failure(run_pinion({"tokenize", "--model", kStories, "--jsonl"}, "[1]\n"), 1, "line 1");
  expect_failure(run_pinion({"detokenize", "--model", kStories, "--jsonl"}, "[1, \"x\"]\n"), 1, "line 1");
  expect_failure(run_pinion({"detokenize", "--model", kStories, "--jsonl"}, "[1e30]\n"), 1, "line 1");
}

TEST(Tokenize, IdsOutsideVocabularyAreRefused) {
  const std::string cause = "outside the vocabulary: want 0 to 511, have 512";
  const std::vector<std::string> command = {"detokenize", "--model", kStories};
  expect_failure(run_pinion(command, "1,512"), 1, cause);
  for (const char* option : {"--ids", "--jsonl"}) {
    std::vector<std::string> arguments = command;
    arguments.emplace_back(option);
    if (arguments.back() == "--ids") arguments.emplace_back("403,512");
    expect_failure(run_pinion(arguments, "[403, 512]\n"), 1, cause);
  }
}

TEST(Tokenize, InvalidUtf8BecomesReplacementCharacters) {
  const json ids = run_json({"tokenize", "--model", kStories, "--json"},
                            "a\xff\xfe"
                            "b");
  const json text = run_json({"detokenize", "--model", kStories, "--ids", ids["ids"].dump(), "--json"});
  EXPECT_EQ(text["text"],
            "a\ufffd\ufffd"
            "b");
}

TEST(Tokenize, TokenizerFilesSuffice) {
  const Folder folder;
  copy_stories(folder);
  fs::remove(folder.path / "config.json");
  fs::remove(folder.path / "model.safetensors");
  EXPECT_EQ(run_pinion({"tokenize", "--model", folder.path, "--text", "Once"}).status, 0);
  fs::remove(folder.path / "tokenizer.json");
  fs::remove(folder.path / "tokenizer.model");
  expect_failure(run_pinion({"tokenize", "--model", folder.path, "--text", "Once"}), 1, "tokenizer");
}

struct TemplateModel : Folder {
  TemplateModel() {
    copy_stories(*this);
    write_file(path / "chat_template.jinja",
               "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
               "{% if tools %}{{ tools | tojson }}\n{% endif %}"
               "{% if mood is defined %}{{ mood is false }} {{ mood }}\n{% endif %}"
               "{% if add_generation_prompt %}[assistant]{% endif %}");
    write_file(path / "m.json", R"([{"role": "user", "content": "a </s> b"}])");
    write_file(path / "t.json", R"([{"z": 1, "a": "é"}])");
  }
  Outcome run(std::vector<std::string> more, const std::string& input = "") const {
    more.insert(more.begin(), {"template", "--model", path.string()});
    return run_pinion(more, input);
  }
};

TEST(Template, PrintsThePrompt) {
  const TemplateModel model;
  const std::string file = model / "m.json";
  EXPECT_EQ(model.run({"--messages", file}).out, "<s>[user] a </s> b\n[assistant]");
  EXPECT_EQ(model.run({"--messages", file, "--no-generation-prompt"}).out, "<s>[user] a </s> b\n");
  EXPECT_EQ(model.run({"--messages", file, "--tools", model / "t.json"}).out,
            "<s>[user] a </s> b\n[{\"z\": 1, \"a\": \"é\"}]\n[assistant]");
  EXPECT_EQ(model.run({"--messages", "-", "--var", "mood=false", "--no-generation-prompt"}, "[]").out,
            "<s>True False\n");
  EXPECT_EQ(model.run({"--messages", "-", "--var", "mood=so so", "--no-generation-prompt"}, "[]").out,
            "<s>False so so\n");
  fs::create_directories(model.path / "additional_chat_templates");
  write_file(model.path / "additional_chat_templates/tool_use.jinja", "of tools");
  EXPECT_EQ(model.run({"--messages", file, "--tools", model / "t.json"}).out, "of tools");
  EXPECT_EQ(model.run({"--messages", file, "--template", "tool_use"}).out, "of tools");
}

TEST(Template, ContinuesTheFinalMessage) {
  const TemplateModel model;
  const std::string file = model / "m.json";
  EXPECT_EQ(model.run({"--messages", file, "--continue-final-message"}).out, "<s>[user] a </s> b");
  const std::string ids = model.run({"--messages", file, "--continue-final-message", "--ids"}).out;
  EXPECT_EQ(("," + ids).find(",2,"), std::string::npos) << ids;  // the user's EOS is plain text
  EXPECT_EQ(run_pinion({"detokenize", "--model", model.path, "--ids", ids.substr(0, ids.size() - 1)}).out,
            "[user] a </s> b\n");
  expect_failure(model.run({"--messages", "-", "--continue-final-message"}, "[]"), 1, "no message to continue");
}

TEST(Template, ControlTokensInMessagesAreText) {
  const TemplateModel model;
  const std::string ids = model.run({"--messages", model / "m.json", "--ids"}).out;
  EXPECT_TRUE(ids.starts_with("1,")) << ids;                     // BOS from the template
  EXPECT_EQ(("," + ids).find(",2,"), std::string::npos) << ids;  // the user's EOS is plain text
  const Outcome back = run_pinion({"detokenize", "--model", model.path, "--ids", ids.substr(0, ids.size() - 1)});
  EXPECT_EQ(back.out, "[user] a </s> b\n[assistant]\n");
}

TEST(Template, BadInputIsOneLine) {
  const TemplateModel model;
  const auto bad = [&](const std::string& messages, const std::string& cause) {
    expect_failure(model.run({"--messages", "-"}, messages), 1, cause);
  };
  bad("", "invalid JSON");
  bad("{}", "want a list");
  bad("[1]", "message 0");
  bad(R"([{"role": 1}])", "message 0");
  bad("[\xff]", "invalid JSON");
  expect_failure(model.run({"--messages", "/nonexistent"}), 1, "/nonexistent");
  expect_failure(model.run({"--messages", "-", "--var", "=1"}, "[]"), 1, "NAME=VALUE");
  for (const char* name : {"messages", "tools", "add_generation_prompt", "bos_token"}) {
    const Outcome outcome = model.run({"--messages", "-", "--var", name + std::string("=[]")}, "[]");
    expect_failure(outcome, 1, "--var \"" + std::string(name) + "\": cannot be set here");
  }
  expect_failure(model.run({"--messages", "-", "--tools", model / "m.json"}, "[{}]"), 1, "message 0");
  expect_failure(model.run({"--messages", model / "m.json", "--template", "rag"}), 1, "want rag, have default");
  write_file(model.path / "chat_template.jinja",
             "{{ messages[0].content }}\n{% for m in messages %}{{ raise_exception('no') }}{% endfor %}");
  bad(R"([{"role": "user", "content": "x"}])", "messages[0]: template fails: no at row 2, column");
  write_file(model.path / "chat_template.jinja",
             "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}");
  const char* system = R"([{"role": "system", "content": "Brief."}, {"role": "user", "content": "Hi"}])";
  const Outcome mended = model.run({"--messages", "-"}, system);
  EXPECT_EQ(mended.out, "Brief.\n\nHi");
  EXPECT_EQ(mended.err, "pinion: mended for this template: system messages as user text\n");
  EXPECT_EQ(model.run({"--messages", "-", "--strict"}, system).out, "Hi");
  write_file(model.path / "chat_template.jinja", "{% for i in range(10**9) %}{% endfor %}");
  bad("[]", "chat_template.jinja: ");
  write_file(model.path / "chat_template.jinja", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}");
  bad("[]", "messages: template fails: nests or calls itself too deep");
  fs::remove(model.path / "chat_template.jinja");
  bad("[]", "no chat template");
}

}  // namespace
}  // namespace pinion
