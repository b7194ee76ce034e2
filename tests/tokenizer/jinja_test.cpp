// Jinja templates: functions that transformers adds, errors, and malicious templates.
#include "tokenizer/templates/jinja.h"

#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

namespace pinion {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string rendered(const std::string& source, const OrderedJson& variables = OrderedJson::object()) {
  std::string jinja;
  std::string text;
  Error e = parse_jinja(source, "t", &jinja);
  if (!e) e = render_jinja(jinja, "t", variables, &text);
  EXPECT_EQ(e.message().find('\n'), std::string::npos) << e.message();
  return e ? "error: " + e.message() : text;
}

TEST(Jinja, JsonEqualsPythons) {
  const OrderedJson value = {{"b", {1, 2.5, nullptr, true}}, {"a", "<é\"\n"}, {"e", OrderedJson::array()}};
  EXPECT_EQ(rendered("{{ v | tojson }}", {{"v", value}}), R"({"b": [1, 2.5, null, true], "a": "<é\"\n", "e": []})");
  EXPECT_EQ(rendered("{{ v | tojson(ensure_ascii=false) }}", {{"v", "é"}}), "\"é\"");
  EXPECT_EQ(rendered("{{ v | tojson(ensure_ascii=true) }}", {{"v", "é"}}), "\"\\u00e9\"");
  EXPECT_EQ(rendered("{{ v | tojson(sort_keys=true) }}", {{"v", {{"b", 1}, {"a", 2}}}}), "{\"a\": 2, \"b\": 1}");
  EXPECT_EQ(rendered("{{ v | tojson(separators=(',', ':')) }}", {{"v", {{"b", {1, 2}}}}}), "{\"b\":[1,2]}");
  EXPECT_EQ(rendered("{{ v | tojson(indent=2) }}", {{"v", {{"b", {1, 2}}, {"c", OrderedJson::object()}}}}),
            "{\n  \"b\": [\n    1,\n    2\n  ],\n  \"c\": {}\n}");
}

TEST(Jinja, TextIsUnicode) {
  EXPECT_EQ(rendered("{{ 'äöü' | length }}{{ [1, 2] | count }}{{ 'äb' | first }}{{ [3] | first }}"), "32ä3");
  EXPECT_EQ(rendered("{{ 'ŉ և ᾳ ß' | upper }} {{ 'ﬁn ᾳ և ß ŉ'.title() }}"), "ʼN ԵՒ ΑΙ SS Fin ᾼ Եւ Ss ʼN");
  EXPECT_EQ(rendered("[{{ v | trim }}]", {{"v", "\u00a0\x1f a\u3000b \u2028\n"}}), "[a\u3000b]");
  EXPECT_EQ(rendered("[{{ v | trim }}]", {{"v", " \n"}}), "[]");
  EXPECT_EQ(rendered("{{ x is " + std::string(200000, ' ') + "undefined }}"), "True");
  EXPECT_EQ(rendered("{{ 'a-b-' | replace('-', '+') }}"), "a+b+");
  EXPECT_EQ(rendered("{{ v | map(attribute='f.n') | join(',') }}", {{"v", {{{"f", {{"n", "x"}}}}}}}), "x");
  EXPECT_EQ(rendered("{{ ['a'] | map('upper') | join }}"), "A");
  EXPECT_EQ(rendered("{{ strftime_now('%Y') | length }}"), "4");
  std::string date;
  EXPECT_EQ(render_jinja("{{ strftime_now('%d %b %Y %H:%M') }}", "t", OrderedJson::object(), &date, true).message(),
            "");
  EXPECT_EQ(date, "01 Jan 2025 00:00");
  EXPECT_NE(rendered("{{ strftime_now('%d %b %Y %H:%M') }}"), date) << "only where it is fixed";
}

TEST(Jinja, TestsOfUndefinedAndBooleans) {
  EXPECT_EQ(rendered("{{ x is undefined }} {{ x is not undefined }} is undefined"), "True False is undefined");
  EXPECT_EQ(rendered("{{ 'x is undefined' }}{# x is undefined #}{{ y  is\tundefined or 0 }}", {{"y", 1}}),
            "x is undefined0");
  EXPECT_EQ(rendered("{% if x is undefined %}{{ \"don't\" }} {{ 'a\\'' }} {{ y is undefined }}{% endif %}"),
            "don't a' True");
  EXPECT_EQ(rendered("{{ x is false }} {{ x is not true }} {{ y is true }} {{ (1 == 2) is false and not y is false }}",
                     {{"y", true}}),
            "False True True True");
}

TEST(Jinja, LoopElse) {
  EXPECT_EQ(rendered("{% for x in [1, 2] %}{{ x }}{% break %}{% else %}E{% endfor %}"), "1E");
  EXPECT_EQ(rendered("{% for x in [1, 2] %}{{ x }}{% continue %}{% else %}E{% endfor %}"), "12E");
  EXPECT_EQ(rendered("{% for x in [1, 2] %}{{ x }}{% if x == 2 %}{% break %}{% endif %}{% else %}E{% endfor %}"), "12");
}

TEST(Jinja, LargeNumbersFail) {
  EXPECT_EQ(rendered("{{ '%9999999d' % 1 }}"),
            "error: t: template fails: a width or precision is too large at row 1, column 16");
  for (const char* text : {"'{:9999999d}'.format(1)", "9223372036854775807 + 1", "'x' | indent(9999999)"}) {
    EXPECT_TRUE(rendered("{{ " + std::string(text) + " }}").starts_with("error: t: ")) << text;
  }
}

TEST(Jinja, UnknownNamesFail) {
  EXPECT_EQ(rendered("a\n{{ 'b' | urlize }}"),
            "error: t: template fails: no filter named 'urlize' at row 2, column 10");
  EXPECT_EQ(rendered("{{ 'b' is escaped }}"), "error: t: template fails: no test named 'escaped' at row 1, column 8");
  EXPECT_EQ(rendered("{{ 'b'.zfill(3) }}"),
            "error: t: template fails: 'str object' has no attribute 'zfill' at row 1, column 13");
  EXPECT_EQ(rendered("{{ cycler(1) }}"), "error: t: template fails: 'cycler' is undefined at row 1, column 10");
  EXPECT_EQ(rendered("{% if false %}{{ 'b' | urlize }}{% endif %}"), "") << "fails only if it is applied";
}

TEST(Jinja, UnsupportedSyntaxFails) {
  const auto error = [](const std::string& source) { return rendered(source); };
  EXPECT_EQ(error("{% block a %}{% endblock %}"),
            "error: t: template does not parse: unknown tag 'block' at row 1, column 4");
  EXPECT_EQ(
      error("{% for x in y recursive %}{% endfor %}"),
      "error: t: template does not parse: recursive loops are not supported, got 'recursive' at row 1, column 15");
  EXPECT_EQ(error("{{ '\\101' }}"),
            "error: t: template does not parse: escapes by name or in octal are not supported at row 1, column 5");
  EXPECT_EQ(error("{{ '%x' % 1 }}"),
            "error: t: template fails: unsupported format 'x' for a value of type int at row 1, column 9");
  EXPECT_EQ(error("{{ '{:>5}'.format('a') }}"),
            "error: t: template fails: unsupported format '>' for a value of type str at row 1, column 18");
  EXPECT_EQ(error("{{ '{a.b}'.format(a=1) }}"),
            "error: t: template fails: no argument for the format field {a.b} at row 1, column 18");
}

TEST(Jinja, SkipsLongComments) {
  const std::string long_text(3'000'000, 'x');
  EXPECT_EQ(rendered("a{# " + long_text + " #}b {#- " + long_text + " -#} c"), "abc");
  EXPECT_EQ(rendered("a\n{#" + std::string(2'000'000, '\n') + "#}\nb"), "a\nb");
  EXPECT_EQ(rendered("{{ '{# no comment #}' }}{# {{ 'none' }} #}{##}{#-#} {# a {# b #}"), "{# no comment #} ");
  EXPECT_EQ(rendered("{# one\ntwo #}\n{{ raise_exception('No.') }}"),
            "error: t: template fails: No. at row 3, column 19");
  EXPECT_EQ(rendered("{#"), rendered("{#}"));
  EXPECT_NE(rendered("{#").find("end of comment"), std::string::npos);
}

TEST(Jinja, ErrorsHaveCauseAndPosition) {
  EXPECT_EQ(rendered("a\n{{ raise_exception('No.') }}"), "error: t: template fails: No. at row 2, column 19");
  EXPECT_NE(rendered("a\nb\n{% if %}").find("does not parse: "), std::string::npos);
  EXPECT_NE(rendered("a\nb\n{% if %}").find("at row 3"), std::string::npos);
  EXPECT_EQ(rendered("{{ [1][3].x }}"), "error: t: template fails: list object has no element 3 at row 1, column 10");
  EXPECT_EQ(rendered("{{ none + 1 }}"),
            "error: t: template fails: unsupported operand type(s) for +: 'NoneType' and 'int' at row 1, column 9");
  EXPECT_EQ(rendered("ä\nä{{ nothing.here }}"), "error: t: template fails: 'nothing' is undefined at row 2, column 12");
  EXPECT_EQ(rendered("{{ 'a' + [1] }}"),
            "error: t: template fails: can only concatenate str (not \"list\") to str at row 1, column 8");
  EXPECT_EQ(
      rendered("{% if x %}\n{{ x | nope }}"),
      "error: t: template does not parse: expected a tag 'endif', got the end of the template at row 2, column 15");
}

TEST(Jinja, UnsupportedNamesAreErrors) {
  EXPECT_EQ(rendered("{% macro m() %}{{ varargs }}{% endmacro %}{{ m() }}"),
            "error: t: template does not parse: varargs of a macro is not supported at row 1, column 19");
  EXPECT_EQ(rendered("{% macro m(x) %}{% if kwargs.y %}y{% endif %}{% endmacro %}"),
            "error: t: template does not parse: kwargs of a macro is not supported at row 1, column 23");
  EXPECT_EQ(rendered("{% for x in [1] %}{{ loop.changed(x) }}{% endfor %}"),
            "error: t: template fails: loop.changed is not supported at row 1, column 26");
  EXPECT_EQ(rendered("{% macro m(kwargs) %}{{ kwargs }}{% endmacro %}{{ m(1) }}{{ varargs }}"), "1");
  EXPECT_EQ(rendered("{% for x in [1] %}{% for y in [2] %}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}{% endfor %}"),
            "10");
}

TEST(Jinja, RefusesBadSyntax) {
  std::string blocks;
  for (int i = 0; i < 20000; ++i) blocks += "{% if 1 %}";
  for (const std::string& source : {std::string("{% for a in b %}"), std::string("{% endfor %}"), std::string("{{ x"),
                                    std::string("{% raw %}{% endraw"), std::string("{% raw %} {% endraw -"),
                                    std::string("{% nonsense %}"), "{{ " + std::string(100000, '('),
                                    "{{ " + std::string(100000, '-') + "1 }}", "{#" + std::string(200000, ' '), blocks,
                                    "{{ 1" +
                                        [] {
                                          std::string sum;
                                          for (int i = 0; i < 100000; ++i) sum += "+1";
                                          return sum;
                                        }() +
                                        " }}",
                                    std::string(size_t{9} << 20, 'x')}) {
    EXPECT_TRUE(rendered(source).starts_with("error: t: ")) << source.substr(0, 20);
  }
}

TEST(Jinja, StopsEndlessTemplates) {
  const struct {
    const char* source;
    const char* cause;
  } kCases[] = {
      {"{% for i in range(1000000000) %}{% endfor %}", "Range too big"},
      {"{% for i in range(30000) %}{% for j in range(30000) %}{% endfor %}{% endfor %}", "takes too long"},
      {"{{ ('x' * 1000000000000) | length }}", ""},
      {"{% set s = namespace(x='0123456789') %}{% for i in range(40) %}{% set s.x = s.x + s.x %}{% endfor %}", ""},
      {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", ""},
      {"{% for i in range(3000) %}{{ 'x' * 10000 }}{% endfor %}", ""},  // too much text; on a slow machine, too long
      {"{{ 1 // 0 }}", "division by zero"},
      {"{{ 9999999999 * 9999999999 }}", "too large"},
      {"{{ '%999999999999d' % 1 }}", "too large"},
      {"{{ '{:999999999999d}'.format(1) }}", "too large"},
      {"{{ [1] * 1000000000000 }}", "out of memory"},
      {"{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}", "too deep"},
      {"{% set ns = namespace(a=[]) %}{% for i in range(99999) %}{% set ns.a = [ns.a] %}{% endfor %}{{ ns.a }}", ""},
      {"{% set ns = namespace() %}{% for i in range(9) if ns.l is undefined or ns.l.length %}"
       "{% set ns.l = loop %}{% endfor %}{{ 1 // 0 }}",
       "division by zero"},
  };
  for (const auto& test : kCases) {
    const std::string text = rendered(test.source);
    EXPECT_TRUE(text.starts_with("error: t: ")) << test.source << ": " << text.substr(0, 100);
    EXPECT_EQ(text.find("failed"), std::string::npos) << text;
    EXPECT_NE(text.find(test.cause), std::string::npos) << text;
  }
  EXPECT_EQ(rendered("{{ 1 + 1 }}"), "2");  // this process continues
}

}  // namespace
}  // namespace pinion
