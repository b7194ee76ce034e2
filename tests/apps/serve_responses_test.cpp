// OpenAI's Responses API: replies, streams, stored responses.
#include "tests/apps/responses.h"

#include "apps/serve/responses.h"

namespace pinion {
namespace {

// Without the ids, which differ between two replies.
json without_ids(json value) {
  for (const char* name : {"id", "call_id", "created_at", "completed_at"}) {
    if (value.is_object()) value.erase(name);
  }
  if (value.is_structured()) {
    for (json& each : value) each = without_ids(each);
  }
  return value;
}
struct Output {
  const char* name;
  json request;
  std::string text;
  json output;                      // without ids
  std::vector<std::string> events;  // repeated ones once
};

json message(const std::string& text, const char* status = "completed") {
  return {{"type", "message"},
          {"status", status},
          {"role", "assistant"},
          {"content",
           {{{"type", "output_text"}, {"text", text}, {"annotations", json::array()}, {"logprobs", json::array()}}}}};
}

json called(const std::string& name, const std::string& arguments) {
  return {{"type", "function_call"}, {"status", "completed"}, {"name", name}, {"arguments", arguments}};
}

const std::vector<std::string> kMessageEvents = {"output_item.added", "content_part.added", "output_text.delta",
                                                 "output_text.done",  "content_part.done",  "output_item.done"};
const std::vector<std::string> kCallEvents = {"output_item.added", "function_call_arguments.delta",
                                              "function_call_arguments.done", "output_item.done"};

std::vector<std::string> joined_lists(const std::vector<std::vector<std::string>>& lists) {
  std::vector<std::string> all = {"created", "in_progress"};
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

// Joins the deltas of each item.
std::map<std::string, std::string> joined_deltas(const std::vector<json>& stream) {
  std::map<std::string, std::string> texts;
  for (const json& event : stream) {
    if (event["type"].get<std::string>().ends_with(".delta")) {
      texts[event["item_id"]] += event["delta"].get<std::string>();
    }
  }
  return texts;
}

std::string text_of_item(const json& item) {
  for (const char* name : {"arguments", "input"}) {
    if (item.contains(name)) return item[name];
  }
  const json& parts = item["content"].empty() ? item["summary"] : item["content"];
  return parts[0]["text"];
}

TEST(ServeResponses, OutputsAndStreams) {
  const ToolModel model;
  const Server server(model.path);
  const json tools = {with(kWeather, {{"type", "function"}}),
                      {{"type", "namespace"}, {"name", "home_"}, {"tools", {with(kWeather, {{"type", "function"}})}}},
                      {{"type", "custom"}, {"name", "shell"}}};
  const json thoughts = {{{"type", "reasoning_text"}, {"text", "Hm."}}};
  const json thought = {{"type", "reasoning"},
                        {"status", "completed"},
                        {"summary", json::array()},
                        {"content", thoughts},
                        {"encrypted_content", "pinion:Hm."}};
  const json summary = {{{"type", "summary_text"}, {"text", "Hm."}}};
  const json in_rome = {{"type", "function_call"}};
  const std::string rome = "{\"city\": \"Rome\"}";
  const Output outputs[] = {
      {"text", {}, "Hello.", json::array({message("Hello.")}), joined_lists({kMessageEvents, {"completed"}})},
      {"cut text",
       {{"max_output_tokens", 2}},
       "a b c d e f g h",
       json::array({message("a ", "incomplete")}),
       joined_lists({kMessageEvents, {"incomplete"}})},
      {"thoughts",
       {{"include", {"reasoning.encrypted_content"}}},
       "<think>Hm.</think>Hello.",
       {thought, message("Hello.")},
       joined_lists({{"output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.done",
                      "content_part.done", "output_item.done"},
                     kMessageEvents,
                     {"completed"}})},
      {"summary",
       {{"reasoning", {{"summary", "auto"}}}},
       "<think>Hm.</think>Hello.",
       {with(thought, {{"summary", summary}, {"content", json::array()}}), message("Hello.")},
       joined_lists({{"output_item.added", "reasoning_summary_part.added", "reasoning_summary_text.delta",
                      "reasoning_summary_text.done", "reasoning_summary_part.done", "output_item.done"},
                     kMessageEvents,
                     {"completed"}})},
      {"two calls",
       {{"tools", tools}},
       "I look." + call_text("weather", rome) + call_text("home_weather", "{}"),
       {message("I look."), called("weather", rome), with(called("weather", "{}"), {{"namespace", "home_"}})},
       joined_lists({kMessageEvents, kCallEvents, kCallEvents, {"completed"}})},
      {"one call",
       {{"tools", tools}, {"parallel_tool_calls", false}},
       call_text("weather", rome) + call_text("weather", "{}"),
       json::array({called("weather", rome)}),
       joined_lists({kCallEvents, {"completed"}})},
      {"custom call",
       {{"tools", tools}},
       call_text("shell", "{\"input\": \"ls\\n\"}"),
       {{{"type", "custom_tool_call"}, {"status", "completed"}, {"name", "shell"}, {"input", "ls\n"}}},
       joined_lists(
           {{"output_item.added", "custom_tool_call_input.delta", "custom_tool_call_input.done", "output_item.done"},
            {"completed"}})},
  };
  for (const Output& each : outputs) {
    SCOPED_TRACE(each.name);
    const json request = with(with(each.request, text_only(each.text)), {{"input", "Weather?"}});
    const json whole = responses(server, request);
    EXPECT_EQ(without_ids(whole["output"]), each.output);
    EXPECT_EQ(whole["error"], nullptr);
    const std::vector<json> stream = events(server, request);
    std::vector<std::string> names;
    for (const json& event : stream) {
      const std::string name = event["type"].get<std::string>().substr(9);
      if (names.empty() || names.back() != name || name.ends_with("added")) names.push_back(name);
    }
    EXPECT_EQ(names, each.events);
    const json& last = stream.back()["response"];
    EXPECT_EQ(stream.front()["response"]["id"], last["id"]);
    EXPECT_EQ(stream.front()["response"]["output"], json::array());
    json expected = without_ids(whole), found = without_ids(last);
    expected["usage"].erase("input_tokens_details");
    found["usage"].erase("input_tokens_details");
    EXPECT_EQ(found, expected) << "streamed and whole";
    std::map<std::string, std::string> texts;
    for (const json& item : last["output"]) texts[item["id"]] = text_of_item(item);
    EXPECT_EQ(joined_deltas(stream), texts);
    for (const json& event : stream) {
      if (event.contains("item_id")) {
        EXPECT_EQ(event["item_id"], last["output"][event["output_index"].get<size_t>()]["id"]) << event;
      }
    }
  }
  const json usage = responses(server, with(text_only("<think>Hm. Hm. Hm.</think>Hello."), {{"input", "a"}}))["usage"];
  EXPECT_GT(usage["output_tokens_details"]["reasoning_tokens"], 2);
  EXPECT_EQ(usage["total_tokens"], usage["input_tokens"].get<int>() + usage["output_tokens"].get<int>());
}

TEST(ServeResponses, ConstraintsAndLogprobsAreThoseOfChat) {
  const Server server(kDemo);
  const json schema = {{"type", "object"}, {"properties", {{"a", {{"enum", {"x", "y"}}}}}}, {"required", {"a"}}};
  const json format = {{"type", "json_schema"}, {"name", "answer"}, {"strict", true}, {"schema", schema}};
  const json parsed = responses(server, {{"input", "Who?"}, {"text", {{"format", format}}}});
  EXPECT_EQ(parsed["text"]["format"], format);
  EXPECT_TRUE(json::parse(parsed["output"][0]["content"][0]["text"].get<std::string>()).contains("a")) << parsed;
  const json object = responses(
      server, {{"input", "Who?"}, {"max_output_tokens", 1}, {"text", {{"format", {{"type", "json_object"}}}}}});
  EXPECT_EQ(object["output"][0]["content"][0]["text"], "{");

  json request = {{"input", "Who are you?"},
                  {"max_output_tokens", 4},
                  {"top_logprobs", 2},
                  {"include", {"message.output_text.logprobs", "web_search_call.action.sources"}}};
  const json expected =
      server.post("/v1/chat/completions", {{"messages", {{{"role", "user"}, {"content", "Who are you?"}}}},
                                           {"max_tokens", 4},
                                           {"temperature", 0},
                                           {"logprobs", true},
                                           {"top_logprobs", 2}})["choices"][0]["logprobs"]["content"];
  EXPECT_EQ(responses(server, request)["output"][0]["content"][0]["logprobs"], expected);
  json streamed = json::array();
  for (const json& event : events(server, request)) {
    if (event["type"] != "response.output_text.delta") continue;
    for (const json& each : event["logprobs"]) streamed.push_back(each);
  }
  EXPECT_EQ(streamed, expected);
  const httplib::Result result = server.client().Post("/v1/responses", request.dump(), "application/json");
  EXPECT_EQ(result->get_header_value("X-Pinion-Ignored"), "include: web_search_call.action.sources");
}

TEST(ServeResponses, StoredResponsesGoOn) {
  const ToolModel model;
  const Server server(model.path);
  const json first = responses(
      server, with(text_only(call_text("weather", "{}")), {{"input", "Weather?"},
                                                           {"instructions", "Be brief."},
                                                           {"tools", {with(kWeather, {{"type", "function"}})}}}));
  const json& call = first["output"][0];
  const json result = {{"type", "function_call_output"}, {"call_id", call["call_id"]}, {"output", "sunny"}};
  const json second =
      responses(server, with(text_only("Sunny."), {{"previous_response_id", first["id"]}, {"input", {result}}}));
  EXPECT_EQ(second["previous_response_id"], first["id"]);
  const auto tokens = [](const json& response) { return response["usage"]["input_tokens"]; };
  EXPECT_EQ(tokens(second),
            tokens(responses(server, {{"input", {{{"role", "user"}, {"content", "Weather?"}}, call, result}},
                                      {"max_output_tokens", 1}})))
      << "without the previous instructions";
  const json reference = {{"type", "item_reference"}, {"id", call["id"]}};
  EXPECT_EQ(tokens(second),
            tokens(responses(server, {{"input", {{{"role", "user"}, {"content", "Weather?"}}, reference, result}},
                                      {"max_output_tokens", 1}})));

  const std::string path = "/v1/responses/" + second["id"].get<std::string>();
  EXPECT_EQ(json::parse(server.get(path)), second);
  const json items = json::parse(server.get(path + "/input_items"));
  ASSERT_EQ(items["data"].size(), 3u);
  EXPECT_EQ(items["object"], "list");
  EXPECT_EQ(items["has_more"], false);
  EXPECT_EQ(items["first_id"], items["data"][0]["id"]);
  EXPECT_EQ(items["last_id"], items["data"][2]["id"]);
  EXPECT_EQ(items["data"][0]["output"], "sunny");
  EXPECT_EQ(items["data"][1], call);
  const json text = {{"type", "input_text"}, {"text", "Weather?"}};
  EXPECT_EQ(items["data"][2]["role"], "user");
  EXPECT_EQ(items["data"][2]["type"], "message");
  EXPECT_EQ(items["data"][2]["content"], json::array({text}));
  const json ascending = json::parse(server.get(path + "/input_items?order=asc"));
  EXPECT_EQ(ascending["first_id"], items["last_id"]);
  EXPECT_EQ(ascending["data"][2], items["data"][0]);
  server.get("/v1/responses/input_items", 404);
  server.get(path + "x/input_items", 404);
  const json greeting =
      responses(server, {{"instructions", "Greet."}, {"input", json::array()}, {"max_output_tokens", 1}});
  const json none = json::parse(server.get("/v1/responses/" + greeting["id"].get<std::string>() + "/input_items"));
  EXPECT_TRUE(none["data"].empty() && none["first_id"].is_null() && none["last_id"].is_null()) << none;
  const auto erase = [&] { return server.client().Delete(path); };
  const httplib::Result erased = erase();
  EXPECT_EQ(erased->status, 200) << erased->body;
  EXPECT_EQ(json::parse(erased->body), json({{"id", second["id"]}, {"object", "response"}, {"deleted", true}}));
  EXPECT_EQ(erase()->status, 404);
  EXPECT_TRUE(json::parse(server.get(path, 404))["error"]["message"].is_string());
  EXPECT_EQ(responses(server, {{"previous_response_id", second["id"]}, {"input", "a"}}, 400)["error"]["param"],
            "previous_response_id");
  const json unstored = responses(server, with(text_only("a"), {{"input", "a"}, {"store", false}}));
  server.get("/v1/responses/" + unstored["id"].get<std::string>(), 404);
  EXPECT_EQ(server.client().Delete("/v1/models/demo")->status, 404);
}

TEST(ServeResponses, StoreDropsTheLeastRecentlyUsed) {
  ResponseStore store(4500);
  const auto add = [&](const std::string& id, size_t bytes) {
    store.add({.id = id,
               .response = R"({"output": [{"id": ")" + id + std::string(bytes, 'x') + R"("}]})",
               .items = R"([{"id": "sent"}])"});
  };
  for (const char* id : {"a", "b", "c"}) add(id, 1000);
  EXPECT_TRUE(store.find("a"));
  add("d", 1500);
  EXPECT_FALSE(store.find("b"));
  for (const char* id : {"a", "c", "d"}) EXPECT_TRUE(store.find(id)) << id;
  EXPECT_FALSE(store.find_item("d" + std::string(1500, 'x')).is_null());
  for (const char* id : {"", "xx", "sent"}) EXPECT_TRUE(store.find_item(id).is_null()) << id;
  add("e", 6000);
  for (const char* id : {"a", "c", "d", "e"}) EXPECT_FALSE(store.find(id)) << id;
  for (int i = 0; i < 100; ++i) {
    add("f", 1000);
    EXPECT_TRUE(store.find("f", true));
  }
  EXPECT_FALSE(store.find("f"));
  for (const char* id : {"g", "h", "i"}) add(id, 1000);
  EXPECT_TRUE(store.find("g")) << "erased ones count no more";
}

}  // namespace
}  // namespace pinion
