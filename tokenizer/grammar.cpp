#include "tokenizer/grammar.h"

#include <xgrammar/xgrammar.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <stdexcept>

#include "tokenizer/grammar_hooks.h"
#include "tokenizer/grammar_pattern.h"
#include "tokenizer/json_schema.h"
#include "tokenizer/limited_run.h"

namespace pinion {

struct Grammar {
  xgrammar::CompiledGrammar compiled;
};

namespace {

constexpr size_t kMostKeptBytes = size_t{64} << 20;
constexpr int kTrialShare = 16;  // of the vocabulary that a stranger's source is tried on, and so of the time it takes
constexpr RunLimits kTrialLimits = {.cpu_seconds = 1, .wall_seconds = 20};
// Of a stranger's source with the whole vocabulary: to compile it, and to make the first mask, which all texts wait
// for.
constexpr double kMostCompileSeconds = 10, kMostMaskSeconds = 0.5;
constexpr size_t kMostSourceBytes = size_t{1} << 20;

// The first line: the rest of what the library says is an excerpt.
std::string first_line(std::string_view text) {
  text = text.substr(0, std::min<size_t>(text.find('\n'), 400));
  while (!text.empty() && (text.back() == ' ' || text.back() == '.' || text.back() == ':')) text.remove_suffix(1);
  return text.empty() ? "cannot be read" : std::string(text);
}

// Calls `f`. What it throws is an error, and so is what the library complains of: a text that breaks the schema must
// not pass for one that keeps it.
Error guarded(const std::string& where, const auto& f) {
  std::string& complaint = grammar_complaint();
  complaint.clear();
  try {
    f();
  } catch (const std::bad_alloc&) {
    return error("out of memory", where);
  } catch (const std::exception& e) {
    return error(first_line(e.what()), where);
  }
  return complaint.empty() ? Error{} : error(first_line(complaint), where);
}

// JSON in one line, as json.dumps() of Python writes it: with blanks chosen by the model a text may be nothing else.
constexpr bool kAnyWhitespace = false;

xgrammar::CompiledGrammar compile_source(xgrammar::GrammarCompiler compiler, const GrammarSource& source) {
  switch (source.kind) {
    case GrammarSource::Kind::json_schema:
      return compiler.CompileJSONSchema(source.text, kAnyWhitespace);
    case GrammarSource::Kind::regex:
      return compiler.CompileRegex(source.text);
    case GrammarSource::Kind::ebnf:
      break;
  }
  return compiler.CompileGrammar(source.text);
}

// What the library reads.
Error completed(const GrammarSource& source, const std::string& where, std::string* text) {
  if (source.kind == GrammarSource::Kind::json_schema) return complete_schema(source.text, where, text);
  if (source.kind == GrammarSource::Kind::regex) return plain_pattern(source.text, where, text);
  *text = source.text;
  return {};
}

// Every `share`-th token, and all of one byte, so that any text can be spelled.
xgrammar::TokenizerInfo vocabulary_of(const Tokenizer& tokenizer, int share) {
  const int32_t size = vocab_size(tokenizer);
  std::vector<std::string> tokens(static_cast<size_t>(size));
  for (int32_t id = 0; id < size; ++id) {
    std::string bytes = token_bytes(tokenizer, id);
    if (id % share == 0 || bytes.size() == 1) tokens[static_cast<size_t>(id)] = std::move(bytes);
  }
  return {tokens, xgrammar::VocabType::RAW, size, std::vector<int32_t>()};
}

// Does what every text needs first, which may take too much already.
Error begin_text(const Grammar& grammar, double most_seconds) {
  GrammarText text(grammar, {}, most_seconds);
  std::vector<uint32_t> bits(
      static_cast<size_t>(xgrammar::GetBitmaskSize(grammar.compiled.GetTokenizerInfo().GetVocabSize())));
  text.foreseen(most_seconds);  // fails with the next call
  return text.next(bits, most_seconds);
}

}  // namespace

struct GrammarCompiler::Library {
  xgrammar::GrammarCompiler compiler;
};

GrammarCompiler::GrammarCompiler(std::shared_ptr<const Tokenizer> tokenizer) : tokenizer_(std::move(tokenizer)) {}

GrammarCompiler::~GrammarCompiler() = default;

const GrammarCompiler::Library& GrammarCompiler::library(Lazy& lazy, int share) {
  std::call_once(lazy.once, [&] {
    lazy.library.reset(new Library{xgrammar::GrammarCompiler(vocabulary_of(*tokenizer_, share), 1, false)});
  });
  return *lazy.library;
}

bool GrammarCompiler::find(const GrammarSource& source, bool is_trusted, std::shared_ptr<const Grammar>* out) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(
      kept_, [&](const Kept& kept) { return kept.source == source && (is_trusted || !kept.is_trusted); });
  if (found == kept_.end()) return false;
  *out = found->grammar;
  std::rotate(found, found + 1, kept_.end());
  return true;
}

void GrammarCompiler::keep(Kept kept) {
  const std::lock_guard lock(mutex_);
  kept_.push_back(std::move(kept));
  size_t bytes = 0;
  for (auto at = kept_.rbegin(); at != kept_.rend(); ++at) {
    bytes += at->bytes;
    if (bytes <= kMostKeptBytes) continue;
    kept_.erase(kept_.begin(), at.base());
    return;
  }
}

Error GrammarCompiler::compile(const GrammarSource& source, const std::string& where, bool is_trusted,
                               std::shared_ptr<const Grammar>* out) {
  if (source.text.size() > kMostSourceBytes) return error("too long", where, "at most 1 MB");
  if (find(source, is_trusted, out)) return {};
  GrammarSource given = {.kind = source.kind, .text = {}};
  if (Error e = is_trusted ? completed(source, where, &given.text) : try_out(source, where, &given.text)) return e;
  const GrammarLimit limit(is_trusted ? GrammarText::kAnyTime : kMostCompileSeconds);
  Error e =
      guarded(where, [&] { *out = std::make_shared<Grammar>(compile_source(library(whole_, 1).compiler, given)); });
  if (!e) keep({source, is_trusted, *out, source.text.size() + (*out)->compiled.MemorySizeBytes()});
  return e;
}

Error GrammarCompiler::try_out(const GrammarSource& source, const std::string& where, std::string* text) {
  const Library* trial = nullptr;
  if (Error e = guarded(where, [&] { trial = &library(trial_, kTrialShare); })) return e;
  const auto compile_part = [&](std::string* made) {
    if (Error e = completed(source, where, made)) return e;
    std::optional<Grammar> grammar;
    Error e =
        guarded(where, [&] { grammar.emplace(compile_source(trial->compiler, {.kind = source.kind, .text = *made})); });
    return e ? e : begin_text(*grammar, kMostMaskSeconds / kTrialShare);
  };
  return run_limited(compile_part, where, text, kTrialLimits);
}

struct GrammarText::Matcher {
  std::optional<xgrammar::GrammarMatcher> matcher = {};
  Error failure = {};               // the first one: what the library holds may be of no use behind it
  std::vector<uint32_t> bits = {};  // of the tokenizer's vocabulary; the logits' may be larger or smaller

  const Error& ask(double most_seconds, const auto& f) {
    if (failure) return failure;
    const GrammarLimit limit(most_seconds);
    failure = guarded("grammar", f);
    return failure;
  }
};

GrammarText::GrammarText(const Grammar& grammar, std::span<const int32_t> eos_ids, double most_seconds) {
  const int size = grammar.compiled.GetTokenizerInfo().GetVocabSize();
  std::optional<std::vector<int>> ends(std::in_place, eos_ids.begin(), eos_ids.end());
  std::erase_if(*ends, [size](int id) { return id < 0 || id >= size; });
  if (ends->empty()) ends.reset();
  matcher_ = std::make_unique<Matcher>();
  matcher_->bits.resize(static_cast<size_t>(xgrammar::GetBitmaskSize(size)));
  matcher_->ask(most_seconds, [&] { matcher_->matcher.emplace(grammar.compiled, ends); });
}

GrammarText::~GrammarText() = default;

Error GrammarText::next(std::span<uint32_t> allowed, double most_seconds) {
  std::vector<uint32_t>& own = matcher_->bits;
  int64_t words = std::ssize(own);
  DLTensor bits = {};
  bits.data = own.data();
  bits.device = {kDLCPU, 0};
  bits.ndim = 1;
  bits.dtype = xgrammar::GetBitmaskDLType();
  bits.shape = &words;
  if (Error e = matcher_->ask(most_seconds, [&] { matcher_->matcher->FillNextTokenBitmask(&bits); })) return e;
  std::ranges::fill(allowed, 0);
  std::ranges::copy(std::span(own).first(std::min(own.size(), allowed.size())), allowed.begin());
  const bool is_end = std::ranges::all_of(allowed, [](uint32_t word) { return word == 0; });
  if (!is_end || matcher_->matcher->IsCompleted()) return {};
  return error("no token of this vocabulary can go on with the text", "grammar");
}

Error GrammarText::add(int32_t id, double most_seconds) {
  bool is_taken = false;
  if (Error e = matcher_->ask(most_seconds, [&] { is_taken = matcher_->matcher->AcceptToken(id); })) return e;
  return is_taken ? Error{} : error("does not allow the token", "grammar", {}, std::to_string(id));
}

std::string GrammarText::foreseen(double most_seconds) {
  std::string text;
  matcher_->ask(most_seconds, [&] { text = matcher_->matcher->FindJumpForwardString(); });
  return text;
}

}  // namespace pinion
