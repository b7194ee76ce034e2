// pinion template.
#include "tests/apps/program.h"

namespace pinion {
namespace {

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

TEST(Template, ControlTokensInMessagesAreText) {
  const TemplateModel model;
  const std::string ids = model.run({"--messages", model / "m.json", "--ids"}).out;
  EXPECT_TRUE(ids.starts_with("1,")) << ids;                     // BOS of the template
  EXPECT_EQ(("," + ids).find(",2,"), std::string::npos) << ids;  // the EOS that the user typed is none
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
    expect_failure(outcome, 1, "--var \"" + std::string(name) + "\": cannot be set so");
  }
  expect_failure(model.run({"--messages", "-", "--tools", model / "m.json"}, "[{}]"), 1, "message 0");
  expect_failure(model.run({"--messages", model / "m.json", "--template", "rag"}), 1, "want rag, have default");
  write_file(model.path / "chat_template.jinja",
             "{{ messages[0].content }}\n{% for m in messages %}{{ raise_exception('no') }}{% endfor %}");
  bad(R"([{"role": "user", "content": "x"}])", "chat_template.jinja: template fails: no at row 2, column");
  write_file(model.path / "chat_template.jinja", "{% for i in range(10**9) %}{% endfor %}");
  bad("[]", "chat_template.jinja: ");
  write_file(model.path / "chat_template.jinja", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}");
  bad("[]", "chat_template.jinja: ");
  fs::remove(model.path / "chat_template.jinja");
  bad("[]", "no chat template");
}

}  // namespace
}  // namespace pinion
