// Statements, see syntax.h.
#include <algorithm>

#include "tokenizer/templates/jinja/parser.h"

namespace pinion::jinja {
namespace {

using Kind = Statement::Kind;
using Names = std::initializer_list<std::string_view>;

class StatementParser {
 public:
  explicit StatementParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Body run() { return parse_body({}); }

 private:
  // Up to a tag of one of these names, which is current then; none: up to the end.
  Body parse_body(Names ends) {
    const Depth guard(4);
    Body body;
    while (!tokens_.sees(Token::Kind::kEnd)) {
      const Token token = tokens_.take();
      if (token.kind == Token::Kind::kData) {
        body.push_back({.kind = Kind::kText, .place = token.place, .text = token.text});
      } else if (token.kind == Token::Kind::kVariableBegin) {
        body.push_back({.kind = Kind::kPrint, .place = token.place});
        body.back().expressions.push_back(expressions_.parse_tuple());
        tokens_.need(Token::Kind::kVariableEnd, "the end of the tag");
      } else {
        const Token& name = tokens_.current();
        if (name.kind == Token::Kind::kName && std::ranges::count(ends, name.text) > 0) return body;
        body.push_back(parse_statement());
        tokens_.need(Token::Kind::kBlockEnd, "the end of the tag");
      }
    }
    if (ends.size() > 0) tokens_.refuse("expected a tag '" + std::string(*(ends.end() - 1)) + "'");
    return body;
  }

  // The rest of a tag, what follows it, and the name of the tag that ends that, which is taken.
  Body parse_block(Names ends) {
    tokens_.take_sign(":");
    tokens_.need(Token::Kind::kBlockEnd, "the end of the tag");
    return parse_body(ends);
  }

  Body parse_whole_block(std::string_view end) {
    Body body = parse_block({end});
    tokens_.take();
    return body;
  }

  Statement parse_statement() {
    const Token name = tokens_.need(Token::Kind::kName, "the name of a tag");
    Statement made{.kind = Kind::kScope, .place = name.place};
    const struct {
      std::string_view name;
      void (StatementParser::*parse)(Statement*);
    } kTags[] = {{"for", &StatementParser::parse_for},           {"if", &StatementParser::parse_if},
                 {"set", &StatementParser::parse_set},           {"with", &StatementParser::parse_with},
                 {"macro", &StatementParser::parse_macro},       {"call", &StatementParser::parse_call},
                 {"filter", &StatementParser::parse_filter},     {"print", &StatementParser::parse_print},
                 {"block", &StatementParser::parse_named_block}, {"generation", &StatementParser::parse_generation},
                 {"break", &StatementParser::parse_break},       {"continue", &StatementParser::parse_continue}};
    for (const auto& tag : kTags) {
      if (tag.name != name.text) continue;
      (this->*tag.parse)(&made);
      return made;
    }
    throw SyntaxFailure("unknown tag '" + name.text + "'", name.place);
  }

  void parse_for(Statement* out) {
    out->kind = Kind::kFor;
    out->target = expressions_.parse_target("in", false);
    tokens_.need_name("in");
    out->expressions.push_back(expressions_.parse_tuple(false, "recursive"));
    out->expressions.push_back(tokens_.take_name("if") ? expressions_.parse_expression() : nullptr);
    out->is_recursive = tokens_.take_name("recursive");
    ++loops_;
    out->branches.push_back(parse_block({"else", "endfor"}));
    --loops_;
    out->branches.push_back(tokens_.take().text == "else" ? parse_whole_block("endfor") : Body());
  }

  void parse_if(Statement* out) {
    out->kind = Kind::kIf;
    for (;;) {
      out->expressions.push_back(expressions_.parse_tuple(false));
      out->branches.push_back(parse_block({"elif", "else", "endif"}));
      const std::string next = tokens_.take().text;
      if (next == "else") out->branches.push_back(parse_whole_block("endif"));
      if (next != "elif") return;
    }
  }

  void parse_set(Statement* out) {
    out->target = expressions_.parse_target({}, true);
    if (tokens_.take_sign("=")) {
      out->kind = Kind::kSet;
      out->expressions.push_back(expressions_.parse_tuple());
      return;
    }
    out->kind = Kind::kSetBlock;
    out->expressions.push_back(expressions_.parse_filters(nullptr));
    out->branches.push_back(parse_whole_block("endset"));
  }

  void parse_with(Statement* out) {
    out->kind = Kind::kWith;
    while (!tokens_.sees(Token::Kind::kBlockEnd)) {
      if (!out->targets.empty()) tokens_.need_sign(",");
      out->targets.push_back(expressions_.parse_target({}, false));
      tokens_.need_sign("=");
      out->expressions.push_back(expressions_.parse_expression());
    }
    out->branches.push_back(parse_whole_block("endwith"));
  }

  void parse_signature(Signature* out) {
    tokens_.need_sign("(");
    while (!tokens_.sees_sign(")")) {
      if (!out->names.empty()) tokens_.need_sign(",");
      out->names.push_back(tokens_.need(Token::Kind::kName, "a name").text);
      if (tokens_.take_sign("=")) {
        out->defaults.push_back(expressions_.parse_expression());
      } else if (!out->defaults.empty()) {
        tokens_.refuse("a parameter without a default follows one with a default");
      }
    }
    tokens_.need_sign(")");
  }

  // `macro` has its name and signature.
  void parse_macro_body(const std::shared_ptr<Macro>& macro, std::string_view end, Statement* out) {
    expressions_.open_macros.push_back(macro.get());
    const int loops = std::exchange(loops_, 0);
    macro->body = parse_whole_block(end);
    loops_ = loops;
    expressions_.open_macros.pop_back();
    const std::vector<std::string>& names = macro->signature.names;
    const auto caller = static_cast<size_t>(std::ranges::find(names, "caller") - names.begin());
    if (macro->uses_caller && caller < names.size() - macro->signature.defaults.size()) {
      throw SyntaxFailure("a macro's parameter 'caller' needs a default", out->place);
    }
    out->macro = macro;
  }

  void parse_macro(Statement* out) {
    out->kind = Kind::kMacro;
    const auto macro = std::make_shared<Macro>();
    macro->name = tokens_.need(Token::Kind::kName, "a name").text;
    parse_signature(&macro->signature);
    parse_macro_body(macro, "endmacro", out);
  }

  void parse_call(Statement* out) {
    out->kind = Kind::kCallBlock;
    const auto macro = std::make_shared<Macro>();
    macro->name = "caller";
    if (tokens_.sees_sign("(")) parse_signature(&macro->signature);
    out->expressions.push_back(expressions_.parse_expression());
    if (out->expressions.back()->kind != Expression::Kind::kCall) {
      throw SyntaxFailure("expected a call", out->expressions.back()->place);
    }
    parse_macro_body(macro, "endcall", out);
  }

  void parse_filter(Statement* out) {
    out->kind = Kind::kFilterBlock;
    out->expressions.push_back(expressions_.parse_filters(nullptr, true));
    out->branches.push_back(parse_whole_block("endfilter"));
  }

  void parse_print(Statement* out) {
    out->kind = Kind::kPrint;
    while (!tokens_.sees(Token::Kind::kBlockEnd)) {
      if (!out->expressions.empty()) tokens_.need_sign(",");
      out->expressions.push_back(expressions_.parse_expression());
    }
  }

  void parse_named_block(Statement* out) {
    const std::string name = tokens_.need(Token::Kind::kName, "a name").text;
    tokens_.take_name("scoped");
    out->branches.push_back(parse_whole_block("endblock"));
    tokens_.take_name(name);
  }

  // What trainers mask; it runs as the body of a call.
  void parse_generation(Statement* out) {
    const int loops = std::exchange(loops_, 0);
    out->branches.push_back(parse_whole_block("endgeneration"));
    loops_ = loops;
  }

  void parse_break(Statement* out) { leave_loop(Kind::kBreak, out); }
  void parse_continue(Statement* out) { leave_loop(Kind::kContinue, out); }

  void leave_loop(Kind kind, Statement* out) {
    if (loops_ == 0) throw SyntaxFailure("break and continue need a loop", out->place);
    out->kind = kind;
  }

  TokenStream tokens_;
  ExpressionParser expressions_{&tokens_};
  int loops_ = 0;  // around the current tag
};

}  // namespace

Body parse(const std::string& source) { return StatementParser(tokenize(source)).run(); }

}  // namespace pinion::jinja
