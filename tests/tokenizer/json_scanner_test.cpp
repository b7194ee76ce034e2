#include "tokenizer/answers/json_scanner.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace pinion {
namespace {

// The bytes that the scanner accepts, with "!" before an invalid byte and "..." if the value is incomplete.
std::string taken(std::string_view text) {
  JsonScanner scanner;
  std::string out;
  for (; !text.empty() && scanner.put(text.substr(0, 1), &out) > 0; text.remove_prefix(1)) {
  }
  if (scanner.state() == JsonScanner::State::kInvalid) return out + "!";
  return scanner.state() == JsonScanner::State::kComplete ? out : out + "...";
}

TEST(JsonScanner, FindsTheEndOfAValue) {
  for (const char* json : {R"({})", R"([])", R"("a\"\\\/\b\f\n\r\t\u00E9\ud83d\uDE00é")", "true", "false", "null",
                           R"({"a": [1, -0.5, 2e10, 1.25E-3, 0, -7e+1] , "b":{"":[[],{}]}})", "[ \t\r\n1 , true]"}) {
    EXPECT_TRUE(nlohmann::json::accept(json)) << json;
    EXPECT_EQ(taken(std::string(json) + "}"), json);
  }
  EXPECT_EQ(taken("12,"), "12");
  EXPECT_EQ(taken("-1.5e3 "), "-1.5e3");
}

TEST(JsonScanner, StopsAtTheFirstInvalidByte) {
  for (const char* wrong : {"{!a",       "{\"a\"!}",   "{\"a\":!}",   "{\"a\":1!]",    "{\"a\":1,!}",
                            "[1,!]",     "[1!}",       "[1 !2",       "tr!x",          "\"\\!x",
                            "\"\\u00!g", "\"\\ude0!0", "\"\\ud83d!a", "\"\\ud83d\\!n", "\"\\ud83d\\u004!1",
                            "-!a",       "0!1",        "1.!e",        "1e!.",          "1e+!}",
                            "!,",        "!}",         "!N"}) {
    std::string json(wrong);
    const size_t mark = json.find('!');
    json.erase(mark, 1);
    EXPECT_FALSE(nlohmann::json::accept(json)) << json;
    EXPECT_EQ(taken(json), std::string(wrong, mark) + "!") << json;
  }
  EXPECT_EQ(taken("[1, {\"a"), "[1, {\"a...");
}

TEST(JsonScanner, EscapesControlCharactersInStrings) {
  EXPECT_EQ(taken("[\n\"a\n\r\t\x1f\x7f\"]"), "[\n\"a\\n\\r\\t\\u001f\x7f\"]");
  EXPECT_EQ(json_escaped("\"\\\n\b\f\x02ü"), "\\\"\\\\\\n\\b\\f\\u0002ü");
}

}  // namespace
}  // namespace pinion
