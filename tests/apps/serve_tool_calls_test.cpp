// Tool calls of a server are held to the request's tools: random text whose calls always parse and fit.
#include "tests/apps/server.h"

namespace pinion {
namespace {

const json kMessages = {{{"role", "user"}, {"content", "Tell me a story about an owl."}}};
const json kWeather = json::parse(R"({"type": "object", "properties": {
    "city": {"type": "string", "maxLength": 12}, "days": {"type": "integer", "minimum": 1, "maximum": 9},
    "unit": {"enum": ["C", "F"]}}, "required": ["city", "days"]})");
const json kClose =
    json::parse(R"({"type": "object", "properties": {"now": {"type": "boolean"}}, "required": ["now"]})");

json tool(const std::string& name, const json& schema) {
  return {{"type", "function"}, {"function", {{"name", name}, {"parameters", schema}}}};
}
const json kTools = {tool("weather", kWeather), tool("close", kClose)};

// A model of random text with a form of calls.
struct Caller : Folder {
  explicit Caller(const std::string& form) {
    const std::string end = form.find(">>>") < form.size() ? ">>>" : "";
    copy_stories(*this);
    write_file(path / "chat_template.jinja",
               "{# " + form + " #}{% for m in messages %}{{ m.content }}\n{% endfor %}{{ tools }}" + end);
  }
};

const char* const kForms[] = {
    "<tool_call>{\"name\": n, \"arguments\": a}",  // Hermes
    "<function=f><parameter=k>",                   // Qwen3-Coder
    "<arg_key>",                                   // GLM
    "[TOOL_CALLS]",                                // Mistral
    "List of tools: <|tool_list_start|>[",         // LFM2
    "'<|tool_call>call:' + name",                  // Gemma 4
    "ipython \"parameters\": ",                    // Llama
    "<|channel|><|message|>",                      // gpt-oss
    "'>>>all\\n' + content",                       // functionary 3.2
};

void expect_fits(const std::string& name, const std::string& text) {
  const json arguments = json::parse(text, nullptr, false);
  ASSERT_TRUE(arguments.is_object()) << text;
  if (name == "close") {
    EXPECT_TRUE(arguments.size() == 1 && arguments["now"].is_boolean()) << text;
    return;
  }
  ASSERT_EQ(name, "weather");
  ASSERT_TRUE(arguments.contains("city") && arguments["city"].is_string()) << text;
  const auto characters = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
  EXPECT_LE(std::ranges::count_if(arguments["city"].get<std::string>(), characters), 12) << text;
  ASSERT_TRUE(arguments.contains("days") && arguments["days"].is_number_integer()) << text;
  EXPECT_TRUE(arguments["days"] >= 1 && arguments["days"] <= 9) << text;
  EXPECT_TRUE(!arguments.contains("unit") || arguments["unit"] == "C" || arguments["unit"] == "F") << text;
  EXPECT_EQ(arguments.size(), 2 + arguments.contains("unit")) << text;
}

// The choice of a reply; that of the stream is put together.
json choice_of(const Server& server, json body, bool streams) {
  if (!streams) return server.post("/v1/chat/completions", body)["choices"][0];
  json message = {{"content", ""}, {"tool_calls", json::array()}}, reason;
  for (const json& chunk : server.stream("/v1/chat/completions", std::move(body))) {
    const json& choice = chunk["choices"][0];
    const json& delta = choice["delta"];
    if (delta.contains("content"))
      message["content"] = message["content"].get<std::string>() + delta.value("content", "");
    for (const json& call : delta.value("tool_calls", json::array())) {
      if (call.contains("id")) message["tool_calls"].push_back({{"function", call["function"]}});
      json& function = message["tool_calls"][call["index"].get<size_t>()]["function"];
      if (!call.contains("id"))
        function["arguments"] = function.value("arguments", "") + call["function"].value("arguments", "");
    }
    reason = choice["finish_reason"];
  }
  return {{"message", message}, {"finish_reason", reason}};
}

json seeded_request(int seed, const json& choice) {
  return {{"messages", kMessages},
          {"tools", kTools},
          {"tool_choice", choice},
          {"max_tokens", 200},
          {"seed", seed},
          {"temperature", 1.5},
          {"parallel_tool_calls", seed % 3 == 0}};
}

TEST(ServeToolCalls, RequiredCallsFitTheirTools) {
  for (const char* form : kForms) {
    const Caller model(form);
    Server server(model.path);
    int whole = 0;
    for (int seed = 0; seed < 3; ++seed) {
      const json named = {{"type", "function"}, {"function", {{"name", "weather"}}}};
      const json body = seeded_request(seed, seed % 2 ? json("required") : named);
      const json choice = choice_of(server, body, false), streamed = choice_of(server, body, true);
      const json calls = choice["message"].value("tool_calls", json::array());
      ASSERT_EQ(streamed["message"]["tool_calls"].size(), calls.size()) << form;
      EXPECT_EQ(streamed["finish_reason"], choice["finish_reason"]);
      for (size_t i = 0; i < calls.size(); ++i) {
        const json& function = calls[i]["function"];
        EXPECT_EQ(streamed["message"]["tool_calls"][i]["function"], function);
        expect_fits(function["name"], function["arguments"]);
        EXPECT_TRUE(seed % 2 != 0 || function["name"] == "weather");
      }
      if (choice["finish_reason"] == "length") continue;
      ++whole;
      EXPECT_EQ(choice["finish_reason"], "tool_calls") << form << choice;
      EXPECT_GE(calls.size(), 1u);
      EXPECT_TRUE(choice["message"]["content"].is_null()) << form << choice;
    }
    EXPECT_GT(whole, 0) << form;
  }
}

// An agent: it reads files by calls, gets their contents, calls again, and answers once calls are off.
TEST(ServeToolCalls, AnAgentReadsFilesAndAnswers) {
  const json read = json::parse(R"({"type": "object", "properties": {"path": {"enum": ["main.cpp", "README.md"]}},
      "required": ["path"], "additionalProperties": false})");
  const json files = {{"main.cpp", "int main() {}"}, {"README.md", "An owl, \"told\" in C++."}};
  for (const char* form : {kForms[0], kForms[1], kForms[5]}) {
    SCOPED_TRACE(form);
    const Caller model(form);
    Server server(model.path);
    json messages = kMessages;
    const auto ask = [&](const char* choice, int64_t tokens) {
      const json reply = server.post("/v1/chat/completions", {{"messages", messages},
                                                              {"tools", json::array({tool("read_file", read)})},
                                                              {"tool_choice", choice},
                                                              {"parallel_tool_calls", false},
                                                              {"max_tokens", tokens},
                                                              {"seed", 7}});
      messages.push_back(reply["choices"][0]["message"]);
      return reply["choices"][0]["finish_reason"].get<std::string>();
    };
    for (int step = 0; step < 3; ++step) {
      ASSERT_EQ(ask("required", 200), "tool_calls") << messages.back();
      ASSERT_EQ(messages.back()["tool_calls"].size(), 1u);
      const json call = messages.back()["tool_calls"][0];
      const json arguments = json::parse(call["function"]["arguments"].get<std::string>(), nullptr, false);
      ASSERT_TRUE(arguments.is_object() && files.contains(arguments.value("path", ""))) << call;
      messages.push_back(
          {{"role", "tool"}, {"tool_call_id", call["id"]}, {"content", files[arguments["path"].get<std::string>()]}});
    }
    EXPECT_NE(ask("none", 12), "tool_calls");
    EXPECT_FALSE(messages.back().contains("tool_calls"));
    EXPECT_NE(messages.back()["content"], "");
  }
}

// The text before a mark is free. The bias makes the model draw the token of the mark.
TEST(ServeToolCalls, BegunCallsFitTheirTools) {
  const Caller model(kForms[0]);
  json tokenizer = read_json(model.path / "tokenizer.json");
  json& vocabulary = tokenizer["model"]["vocab"];
  const int32_t mark = vocabulary["é"];
  vocabulary.erase("é");
  vocabulary["<tool_call>"] = mark;
  write_file(model.path / "tokenizer.json", tokenizer.dump());
  Server server(model.path);
  int calls = 0;
  for (int seed = 0; seed < 4; ++seed) {
    json body = seeded_request(seed, "auto");
    body["logit_bias"] = {{std::to_string(mark), 9}};
    const json choice = choice_of(server, body, false), streamed = choice_of(server, body, true);
    EXPECT_EQ(streamed["message"]["content"],
              choice["message"]["content"].is_null() ? "" : choice["message"]["content"]);
    for (const json& call : choice["message"].value("tool_calls", json::array())) {
      ++calls;
      expect_fits(call["function"]["name"], call["function"]["arguments"]);
    }
    json other = body;
    other["tools"] = {{{"name", "close"}, {"input_schema", kClose}}};
    other["tool_choice"] = {{"type", "any"}};
    const json block = server.post("/v1/messages", other)["content"][0];
    EXPECT_EQ(block["name"], "close");
    EXPECT_TRUE(block["input"]["now"].is_boolean()) << block;
    other["tools"] = json::array({tool("close", kClose)});
    other["options"] = {{"num_predict", 60}, {"seed", seed}};
    other["stream"] = false;
    other["tool_choice"] = "required";
    const json called = server.post("/api/chat", other)["message"]["tool_calls"][0]["function"];
    EXPECT_TRUE(called["arguments"]["now"].is_boolean()) << called;
  }
  EXPECT_GT(calls, 0);
}

// Calls without a mark are held once they name a tool.
TEST(ServeToolCalls, BareCallsFitTheirTools) {
  for (const auto& [form, begun] : {std::pair(kForms[6], "{\"name\": \"close\""), {"[func_name1(", "[close("}}) {
    const Caller model(form);
    Server server(model.path);
    int calls = 0;
    for (int seed = 0; seed < 3; ++seed) {
      json body = seeded_request(seed, "auto");
      body["messages"].push_back({{"role", "assistant"}, {"content", begun}, {"prefix", true}});
      const json message = server.post("/v1/chat/completions", body)["choices"][0]["message"];
      for (const json& call : message.value("tool_calls", json::array())) {
        ++calls;
        expect_fits(call["function"]["name"], call["function"]["arguments"]);
      }
    }
    EXPECT_GT(calls, 0) << form;
  }
}

// A mark that may be a word begins no call by itself.
TEST(ServeToolCalls, WordsOfAnswersBeginNoCalls) {
  const Caller model("prefix calls with functools[{");
  Server server(model.path);
  json body = seeded_request(1, "auto");
  body["continue_final_message"] = true;
  const auto reply = [&](const std::string& begun) {
    body["messages"] = {kMessages[0], {{"role", "assistant"}, {"content", begun}}};
    return choice_of(server, body, false);
  };
  EXPECT_FALSE(reply("I like functools")["message"].contains("tool_calls"));
  const json calls = reply("Well, functools[")["message"]["tool_calls"];
  ASSERT_GE(calls.size(), 1);
  expect_fits(calls[0]["function"]["name"], calls[0]["function"]["arguments"]);
}

// A call that max_tokens cuts is not reported.
TEST(ServeToolCalls, CutCallsAreNoCalls) {
  const Caller model(kForms[0]);
  Server server(model.path);
  json body = seeded_request(1, "required");
  body["max_tokens"] = 9;
  const json choice = choice_of(server, body, false);
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_FALSE(choice["message"].contains("tool_calls"));
}

// A schema that no grammar expresses allows any object.
TEST(ServeToolCalls, LooseToolsAreNamed) {
  const Caller model(kForms[0]);
  Server server(model.path);
  json body = seeded_request(1, "required");
  body["tools"] = json::array({tool("odd", {{"type", "object"}, {"contains", 1}, {"not", {{"required", {"a"}}}}})});
  const httplib::Result result = server.client().Post("/v1/chat/completions", body.dump(), "application/json");
  EXPECT_EQ(result->status, 200) << result->body;
  EXPECT_EQ(result->get_header_value("X-Pinion-Loose-Tools"), "odd");
}

}  // namespace
}  // namespace pinion
