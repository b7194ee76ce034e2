// The parser of statements. See syntax.h.
#include <algorithm>
#include <initializer_list>

#include "tokenizer/templates/jinja/syntax.h"

namespace pinion::jinja {
namespace {

class StatementParser {
 public:
  explicit StatementParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Body run() { return parse_body({}); }

 private:
  using Kind = Statement::Kind;
  using Names = std::initializer_list<std::string_view>;

  // Parses up to a tag with one of these names, which becomes current; without names, to the end of the template.
  Body parse_body(Names ends) {
    const DepthGuard guard(4);  // the calls from a body to a body inside it
    Body body;
    while (!tokens_.is(Token::Kind::kEnd)) {
      const Token token = tokens_.take();
      if (token.kind == Token::Kind::kData) {
        body.push_back({.kind = Kind::kText, .offset = token.offset, .text = token.text});
      } else if (token.kind == Token::Kind::kVariableBegin) {
        body.push_back({.kind = Kind::kPrint, .offset = token.offset});
        body.back().expressions.push_back(parse_tuple(tokens_));
        tokens_.expect(Token::Kind::kVariableEnd, "the end of the tag");
      } else {
        if (std::ranges::any_of(ends, [&](std::string_view end) { return tokens_.is_name(end); })) return body;
        body.push_back(parse_statement());
        tokens_.expect(Token::Kind::kBlockEnd, "the end of the tag");
      }
    }
    if (ends.size() > 0) tokens_.fail_here("expected a tag '" + std::string(*(ends.end() - 1)) + "'");
    return body;
  }

  // Parses the end of a tag and the body behind it.
  Body parse_block(Names ends) {
    tokens_.accept_sign(":");
    tokens_.expect(Token::Kind::kBlockEnd, "the end of the tag");
    return parse_body(ends);
  }

  Body parse_whole_block(std::string_view end) {
    Body body = parse_block({end});
    tokens_.take();
    return body;
  }

  Statement parse_statement() {
    const Token name = tokens_.expect(Token::Kind::kName, "the name of a tag");
    Statement made{.kind = Kind::kScope, .offset = name.offset};
    using Parser = StatementParser;
    static constexpr struct {
      std::string_view name;
      Kind kind;
      void (Parser::*parse_rest)(Statement*);
    } kTags[] = {
        {"for", Kind::kFor, &Parser::parse_for},
        {"if", Kind::kIf, &Parser::parse_if},
        {"set", Kind::kSet, &Parser::parse_set},
        {"with", Kind::kWith, &Parser::parse_with},
        {"macro", Kind::kMacro, &Parser::parse_macro},
        {"call", Kind::kCallBlock, &Parser::parse_call},
        {"filter", Kind::kFilterBlock, &Parser::parse_filter},
        {"generation", Kind::kScope, &Parser::parse_generation},
        {"break", Kind::kBreak, &Parser::leave_loop},
        {"continue", Kind::kContinue, &Parser::leave_loop},
    };
    for (const auto& [tag, kind, parse_rest] : kTags) {
      if (tag != name.text) continue;
      made.kind = kind;
      (this->*parse_rest)(&made);
      return made;
    }
    throw SyntaxFailure("unknown tag '" + name.text + "'", name.offset);
  }

  void parse_for(Statement* out) {
    out->target = parse_target(tokens_, "in", false);
    tokens_.expect_name("in");
    out->expressions.push_back(parse_tuple(tokens_, false));
    out->expressions.push_back(tokens_.accept_name("if") ? parse_expression(tokens_) : nullptr);
    if (tokens_.is_name("recursive")) tokens_.fail_here("recursive loops are not supported");
    ++loops_;
    out->bodies.push_back(parse_block({"else", "endfor"}));
    --loops_;
    out->bodies.push_back(tokens_.take().text == "else" ? parse_whole_block("endfor") : Body());
  }

  void parse_if(Statement* out) {
    for (;;) {
      out->expressions.push_back(parse_tuple(tokens_, false));
      out->bodies.push_back(parse_block({"elif", "else", "endif"}));
      const std::string next = tokens_.take().text;
      if (next == "else") out->bodies.push_back(parse_whole_block("endif"));
      if (next != "elif") return;
    }
  }

  void parse_set(Statement* out) {
    out->target = parse_target(tokens_, {}, true);
    if (tokens_.accept_sign("=")) {
      out->expressions.push_back(parse_tuple(tokens_));
      return;
    }
    out->kind = Kind::kSetBlock;
    out->expressions.push_back(parse_filters(tokens_, nullptr));
    out->bodies.push_back(parse_whole_block("endset"));
  }

  void parse_with(Statement* out) {
    while (!tokens_.is(Token::Kind::kBlockEnd)) {
      if (!out->targets.empty()) tokens_.expect_sign(",");
      out->targets.push_back(parse_target(tokens_, {}, false));
      tokens_.expect_sign("=");
      out->expressions.push_back(parse_expression(tokens_));
    }
    out->bodies.push_back(parse_whole_block("endwith"));
  }

  void parse_parameters(Macro* out) {
    tokens_.expect_sign("(");
    while (!tokens_.is_sign(")")) {
      if (!out->parameters.empty()) tokens_.expect_sign(",");
      out->parameters.push_back(tokens_.expect(Token::Kind::kName, "a name").text);
      if (tokens_.accept_sign("=")) {
        out->defaults.push_back(parse_expression(tokens_));
      } else if (!out->defaults.empty()) {
        tokens_.fail_here("a parameter without a default follows one with a default");
      }
    }
    tokens_.take();
  }

  void parse_macro_body(const std::shared_ptr<Macro>& macro, std::string_view end, Statement* out) {
    tokens_.open_macros.push_back(macro.get());
    const int loops = std::exchange(loops_, 0);
    macro->body = parse_whole_block(end);
    loops_ = loops;
    tokens_.open_macros.pop_back();
    const auto caller = std::ranges::find(macro->parameters, "caller") - macro->parameters.begin();
    if (macro->uses_caller && caller < std::ssize(macro->parameters) - std::ssize(macro->defaults)) {
      throw SyntaxFailure("a macro's parameter 'caller' needs a default", out->offset);
    }
    out->macro = macro;
  }

  void parse_macro(Statement* out) {
    const auto macro = std::make_shared<Macro>();
    macro->name = tokens_.expect(Token::Kind::kName, "a name").text;
    parse_parameters(macro.get());
    parse_macro_body(macro, "endmacro", out);
  }

  void parse_call(Statement* out) {
    const auto macro = std::make_shared<Macro>();
    macro->name = "caller";
    if (tokens_.is_sign("(")) parse_parameters(macro.get());
    out->expressions.push_back(parse_expression(tokens_));
    if (out->expressions.back()->kind != Expression::Kind::kCall) {
      throw SyntaxFailure("expected a call", out->expressions.back()->offset);
    }
    parse_macro_body(macro, "endcall", out);
  }

  void parse_filter(Statement* out) {
    out->expressions.push_back(parse_filters(tokens_, nullptr, true));
    out->bodies.push_back(parse_whole_block("endfilter"));
  }

  // {% generation %} marks the text on which training computes the loss, and changes no output. Transformers runs it as
  // a call block, so break and continue inside it cannot leave a loop around it.
  void parse_generation(Statement* out) {
    const int loops = std::exchange(loops_, 0);
    out->bodies.push_back(parse_whole_block("endgeneration"));
    loops_ = loops;
  }

  void leave_loop(Statement* out) {
    if (loops_ == 0) throw SyntaxFailure("break and continue need a loop", out->offset);
  }

  TokenStream tokens_;
  int loops_ = 0;  // loops around the current tag
};

}  // namespace

Body parse(const std::string& source) { return StatementParser(tokenize(source)).run(); }

}  // namespace pinion::jinja
