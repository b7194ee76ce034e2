#include "tokenizer/grammar/grammar.h"

#include <xgrammar/xgrammar.h>

#include <algorithm>
#include <bit>
#include <exception>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "tokenizer/grammar/hooks.h"
#include "tokenizer/grammar/sources.h"
#include "tokenizer/templates/limited_run.h"
#include "tokenizer/tokens/unicode.h"

namespace pinion {

constexpr int kManyCharacters = 64;
constexpr char kSpecial = '\xFF';
constexpr int kSpareOfPatterns = 32;  // characters that suffice to end most strings with a pattern

// Properties of a token that decide whether it still fits into a string with a maximum length.
struct TokenShape {
  uint8_t characters;  // upper bound of its characters; kManyCharacters: that many or more
  bool has_quote;
};

struct GrammarVocabulary {
  xgrammar::TokenizerInfo info;
  std::vector<TokenShape> shapes;  // by id
  std::vector<uint32_t> unusual;   // bits of the tokens with a quote or with many characters
};

struct Grammar {
  std::shared_ptr<const GrammarVocabulary> vocabulary;
  xgrammar::CompiledGrammar compiled;
  // If a schema has maxLength, `compiled` lacks it: a mask with counters would take a tenth of a second. `bounded` is
  // the same schema with maxLength, for a vocabulary of single bytes, and only counts the characters that still fit.
  std::optional<xgrammar::CompiledGrammar> bounded = {};
  bool is_json = false;                       // strings are JSON's
  bool counts_digits = false;                 // of numbers
  std::map<std::string, int32_t> marks = {};  // special tokens that it allows
  std::vector<std::string> loose = {};        // loose_tools()

  size_t bytes() const { return compiled.MemorySizeBytes() + (bounded ? bounded->MemorySizeBytes() : 0); }
};

const std::vector<std::string>& loose_tools(const Grammar& grammar) { return grammar.loose; }

namespace {

// A position in a JSON text: within a string or a number.
struct JsonPosition {
  bool is_in_string = false, is_after_backslash = false, is_in_exponent = false;
  int digits = 0;  // at the end of the text

  void add(char c) {
    if (is_in_string) {
      is_in_string = is_after_backslash || c != '"';
      is_after_backslash = !is_after_backslash && c == '\\';
      return;
    }
    const bool is_digit = c >= '0' && c <= '9';
    is_in_exponent = is_digit || c == '+' || c == '-' ? is_in_exponent : digits > 0 && (c == 'e' || c == 'E');
    digits = is_digit ? digits + 1 : 0;
    is_in_string = c == '"';
  }

  // A model may write digits without end. Integers of 64 bits fit, and exponents stay in the range of a double.
  bool has_too_many_digits() const {
    constexpr int kMaxDigits = 20, kMaxExponentDigits = 2;
    return digits > (is_in_exponent ? kMaxExponentDigits : kMaxDigits);
  }
};

constexpr size_t kMaxCacheBytes = size_t{64} << 20;
// The trial of an untrusted source uses every n-th token, which takes about 1/n of the time.
constexpr int kTrialStride = 16;
constexpr RunLimits kTrialLimits = {.cpu_seconds = 1, .wall_seconds = 20};
// Limits for untrusted sources with the whole vocabulary. The first mask delays all requests.
constexpr double kMaxCompileSeconds = 10, kMaxMaskSeconds = 0.5;
constexpr size_t kMaxSourceBytes = size_t{1} << 20;

// First line of a message of the library, which continues with an excerpt of the source.
std::string first_line(std::string_view text) {
  text = text.substr(0, std::min<size_t>(text.find('\n'), 400));
  while (!text.empty() && (text.back() == ' ' || text.back() == '.' || text.back() == ':')) text.remove_suffix(1);
  return text.empty() ? "cannot be read" : std::string(text);
}

// Calls `f` and returns its exception as an error, or the library's first warning, for example of an ignored keyword.
Error call_library(const std::string& where, const auto& f) {
  std::string& warning = grammar_warning();
  warning.clear();
  try {
    f();
  } catch (const std::bad_alloc&) {
    return error("out of memory", where);
  } catch (const std::exception& e) {
    return error(first_line(e.what()), where);
  }
  return warning.empty() ? Error{} : error(first_line(warning), where);
}

// JSON is one line, spaced as by Python's json.dumps(): a model could write any white space endlessly.
constexpr bool kAnyWhitespace = false;

xgrammar::CompiledGrammar compile_source(xgrammar::GrammarCompiler compiler, const GrammarSource& source) {
  using enum GrammarSource::Kind;
  if (source.kind == kJsonSchema) return compiler.CompileJSONSchema(source.text, kAnyWhitespace);
  return source.kind == kRegex ? compiler.CompileRegex(source.text) : compiler.CompileGrammar(source.text);
}

// Rewrites a source so that XGrammar reads it as its author means it (sources.h).
Error rewrite_source(const GrammarSource& source, const std::string& where, const Tokenizer& tokenizer,
                     std::string* text) {
  if (source.kind == GrammarSource::Kind::kToolCalls) return complete_calls(source.text, tokenizer, text);
  if (source.kind == GrammarSource::Kind::kJsonSchema) return complete_schema(source.text, where, text);
  if (source.kind == GrammarSource::Kind::kRegex) return plain_pattern(source.text, where, text);
  *text = source.text;
  return {};
}

// The path that errors of the library and of the trial name: they concern a schema as a whole.
std::string path_of(const GrammarSource& source, const std::string& where) {
  return source.kind == GrammarSource::Kind::kJsonSchema ? where + ": #" : where;
}

// Every `stride`-th token, and all tokens of one byte, so that every text can be spelled. Special tokens, which
// grammars name by their ids, get a text that no character begins.
std::shared_ptr<const GrammarVocabulary> vocabulary_of(const Tokenizer& tokenizer, int stride) {
  const int32_t size = vocab_size(tokenizer);
  std::vector<std::string> tokens(size);
  std::vector<TokenShape> shapes(size);
  std::vector<uint32_t> unusual(size / 32 + 1);
  for (int32_t id = 0; id < size; ++id) {
    std::string bytes = token_bytes(tokenizer, id);
    if (id % stride != 0 && bytes.size() > 1) continue;
    const auto count = std::max<int64_t>(char_count(bytes), !bytes.empty());
    shapes[id] = {static_cast<uint8_t>(std::min<int64_t>(count, kManyCharacters)), bytes.find('"') != bytes.npos};
    unusual[id / 32] |= uint32_t{shapes[id].has_quote || shapes[id].characters == kManyCharacters} << id % 32;
    tokens[id] = bytes.empty() ? kSpecial + token_text(tokenizer, id) : std::move(bytes);
  }
  return std::make_shared<GrammarVocabulary>(
      GrammarVocabulary{{tokens, xgrammar::VocabType::RAW, size, std::vector<int32_t>()}, shapes, unusual});
}

bool ends_within_character(std::string_view text) {
  const std::string_view last = text.substr(text.empty() ? 0 : last_char(text));
  return !last.empty() && last.size() < 4 && static_cast<unsigned char>(last[0]) >= 0xC0 && utf8_length(last) == 0;
}

// The work before the first token, which may already exceed a limit.
Error make_first_mask(const Grammar& grammar, double max_seconds) {
  GrammarMatcher matcher(grammar, {}, max_seconds);
  std::vector<uint32_t> bits(xgrammar::GetBitmaskSize(grammar.vocabulary->info.GetVocabSize()));
  matcher.jump_forward(max_seconds);  // if it fails, fill_mask() returns the same error
  return matcher.fill_mask(bits, max_seconds);
}

}  // namespace

struct GrammarCompiler::VocabularyCompiler {
  std::shared_ptr<const GrammarVocabulary> vocabulary;
  xgrammar::GrammarCompiler compiler;

  Grammar compile(const GrammarSource& source) const {
    if (source.kind == GrammarSource::Kind::kToolCalls) return compile_calls(source.text);
    const bool is_json = source.kind == GrammarSource::Kind::kJsonSchema;
    Schema schema = is_json ? Schema::parse(source.text) : Schema(), counter = schema;
    if (!drop_max_lengths(schema, false)) return {vocabulary, compile_source(compiler, source), {}, is_json, is_json};
    drop_max_lengths(counter, true);
    return {vocabulary, compile_source(compiler, {.kind = source.kind, .text = schema.dump()}),
            compile_counter({.kind = source.kind, .text = counter.dump()}), is_json, is_json};
  }

  // For a vocabulary of single bytes.
  static xgrammar::CompiledGrammar compile_counter(const GrammarSource& source) {
    std::vector<std::string> bytes;
    for (int i = 0; i < 256; ++i) bytes.emplace_back(1, static_cast<char>(i));
    const xgrammar::TokenizerInfo vocabulary(bytes, xgrammar::VocabType::RAW, 256, std::vector<int32_t>());
    return compile_source(xgrammar::GrammarCompiler(vocabulary, 1, false), source);
  }

  // text: of complete_calls().
  Grammar compile_calls(const std::string& text) const {
    const Schema calls = Schema::parse(text);
    const GrammarSource counter = {.kind = GrammarSource::Kind::kToolCalls, .text = calls["counter"]};
    Grammar grammar = {vocabulary, compile_source(compiler, {.kind = counter.kind, .text = calls["grammar"]})};
    if (!counter.text.empty()) grammar.bounded = compile_counter(counter);
    grammar.is_json = calls["is_json"];
    grammar.marks = calls["marks"];
    grammar.loose = calls["loose"];
    return grammar;
  }
};

GrammarCompiler::GrammarCompiler(std::shared_ptr<const Tokenizer> tokenizer) : tokenizer_(std::move(tokenizer)) {}

GrammarCompiler::~GrammarCompiler() = default;

const GrammarCompiler::VocabularyCompiler& GrammarCompiler::compiler_of(LazyCompiler& lazy, int stride) {
  std::call_once(lazy.once, [&] {
    const auto vocabulary = vocabulary_of(*tokenizer_, stride);
    lazy.compiler.reset(
        new VocabularyCompiler{vocabulary, xgrammar::GrammarCompiler(vocabulary->info, 1, true, kMaxCacheBytes)});
  });
  return *lazy.compiler;
}

bool GrammarCompiler::find(const GrammarSource& source, bool is_trusted, std::shared_ptr<const Grammar>* out) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(
      cache_, [&](const CachedGrammar& entry) { return entry.source == source && (is_trusted || !entry.is_trusted); });
  if (found == cache_.end()) return false;
  *out = found->grammar;
  std::rotate(found, found + 1, cache_.end());
  return true;
}

void GrammarCompiler::add_to_cache(CachedGrammar entry) {
  const std::lock_guard lock(mutex_);
  cache_.push_back(std::move(entry));
  size_t bytes = 0;
  for (auto at = cache_.rbegin(); at != cache_.rend(); ++at) {
    bytes += at->bytes;
    if (bytes <= kMaxCacheBytes) continue;
    cache_.erase(cache_.begin(), at.base());
    return;
  }
}

Error GrammarCompiler::compile(const GrammarSource& source, const std::string& where, bool is_trusted,
                               std::shared_ptr<const Grammar>* out) {
  if (source.text.size() > kMaxSourceBytes) return error("too long", where, "at most 1 MB");
  if (find(source, is_trusted, out)) return {};
  GrammarSource rewritten = {.kind = source.kind, .text = {}};
  Error e = is_trusted ? rewrite_source(source, where, *tokenizer_, &rewritten.text)
                       : compile_trial(source, where, &rewritten.text);
  if (e) return e;
  const GrammarTimeLimit limit(is_trusted ? GrammarMatcher::kNoLimit : kMaxCompileSeconds);
  e = call_library(path_of(source, where),
                   [&] { *out = std::make_shared<Grammar>(compiler_of(full_, 1).compile(rewritten)); });
  if (!e) add_to_cache({source, is_trusted, *out, source.text.size() + (*out)->bytes()});
  return e;
}

// Compiles a source and makes its first mask in a child process, for a sample of the vocabulary. text: rewritten.
Error GrammarCompiler::compile_trial(const GrammarSource& source, const std::string& where, std::string* text) {
  const VocabularyCompiler* trial = nullptr;
  if (Error e = call_library(where, [&] { trial = &compiler_of(trial_, kTrialStride); })) return e;
  const auto compile_sample = [&](std::string* rewritten) {
    if (Error e = rewrite_source(source, where, *tokenizer_, rewritten)) return e;
    std::optional<Grammar> grammar;
    const auto compile = [&] { grammar.emplace(trial->compile({.kind = source.kind, .text = *rewritten})); };
    Error e = call_library(path_of(source, where), compile);
    return e ? e : make_first_mask(*grammar, kMaxMaskSeconds / kTrialStride);
  };
  return run_limited(compile_sample, path_of(source, where), text, kTrialLimits);
}

struct GrammarMatcher::State {
  const Grammar& grammar;
  std::optional<xgrammar::GrammarMatcher> matcher = {}, bounded = {};
  std::string tail = {};            // last bytes of the text
  JsonPosition position = {};       // if the grammar is a schema's
  int spare = 0;                    // lower bound of the characters that still fit into the current string
  Error failure = {};               // the first failure; the library's state is undefined after it
  std::vector<int32_t> ends = {};   // tokens that end the text
  std::vector<uint32_t> bits = {};  // mask of the tokenizer's vocabulary, which may differ in size from the caller's

  const std::string& bytes_of(size_t id) const { return grammar.vocabulary->info.GetDecodedVocab()[id]; }

  static bool would_accept(xgrammar::GrammarMatcher& matcher, const std::string& text) {
    const bool is_accepted = matcher.AcceptString(text);
    if (is_accepted) matcher.Rollback(1);
    return is_accepted;
  }

  // Characters that still fit into the JSON string being written, at most `max`.
  int room(int max) {
    int count = 0;
    while (count < max && bounded->AcceptString("a")) ++count;
    if (count > 0) bounded->Rollback(count);
    return count;
  }

  // Clears the tokens that make a JSON string too long, and inside it all of kManyCharacters or more without a quote.
  void clear_too_long() {
    if (spare < kManyCharacters) spare = room(grammar.is_json ? 4 * kManyCharacters : kManyCharacters);
    // A pattern may need more characters than "a"s fit, so its last ones are tried token by token.
    const bool has_pattern = spare > 0 && !would_accept(*bounded, kCounterMark);
    int left = std::min(spare - (has_pattern ? kSpareOfPatterns : 0), kManyCharacters);
    if (grammar.is_json && spare == 0 && bounded->AcceptString("r")) {  // inside an escape, which "\r" completes
      left = 1 + room(kManyCharacters - 1);
      bounded->Rollback(1);
    }
    const bool is_within_character = ends_within_character(tail);
    // A string that has its maximum length, or nearly so and `bounded` does not know its pattern, ends where it may.
    const bool is_full = left <= 0 && would_accept(*bounded, "\"") && would_accept(*matcher, "\"") &&
                         (has_pattern ? would_accept(*bounded, "\u2603") : would_accept(*matcher, "a"));
    const auto fits = [&](size_t id) {
      const TokenShape& token = grammar.vocabulary->shapes[id];
      if (token.characters == 0 || std::ranges::find(ends, static_cast<int32_t>(id)) != ends.end())
        return true;  // no bytes
      if (token.has_quote || is_within_character) return would_accept(*bounded, bytes_of(id));
      if (left > 0) return token.characters <= left && token.characters < kManyCharacters;
      return !is_full && ((grammar.is_json && !position.is_in_string) || would_accept(*bounded, bytes_of(id)));
    };
    const bool only_unusual_matter = left == kManyCharacters && !is_within_character;  // all other tokens fit
    for_each_allowed([&](size_t id, uint32_t bit) { bits[id / 32] &= fits(id) ? ~0u : ~bit; },
                     [&](size_t word) { return only_unusual_matter ? grammar.vocabulary->unusual[word] : ~0u; });
  }

  // Calls f(id, bit) for each token of the mask, limited to the bits that of_word(index) returns.
  void for_each_allowed(const auto& f, const auto& of_word) {
    for (size_t word = 0; word < bits.size(); ++word) {
      for (uint32_t rest = bits[word] & of_word(word); rest != 0; rest &= rest - 1) {
        const size_t id = word * 32 + static_cast<size_t>(std::countr_zero(rest));
        if (id < grammar.vocabulary->shapes.size()) f(id, rest & -rest);
      }
    }
  }

  // Ends a number with many digits, unless its bounds need more.
  void clear_digits() {
    const auto fits = [&](size_t id) {
      JsonPosition next = position;
      return std::ranges::none_of(bytes_of(id), [&](char c) { return next.add(c), next.has_too_many_digits(); });
    };
    std::vector<uint32_t> kept(bits.size());
    for_each_allowed([&](size_t id, uint32_t bit) { kept[id / 32] |= fits(id) ? bit : 0; }, [](size_t) { return ~0u; });
    if (std::ranges::any_of(kept, [](uint32_t word) { return word != 0; })) bits = std::move(kept);
  }

  bool accept(int32_t id) {
    if (!matcher->AcceptToken(id)) return false;
    const std::string& bytes = bytes_of(id);
    const TokenShape& token = grammar.vocabulary->shapes[id];
    spare = token.has_quote || !grammar.is_json ? 0 : std::max(0, spare - token.characters);
    return count(bytes.starts_with(kSpecial) ? bytes.substr(1) : bytes);
  }

  // Counts a text that `matcher` has accepted.
  bool count(const std::string& text) {
    for (const char c : text) position.add(c);
    if (!bounded || text.empty()) return true;
    tail += text;
    if (tail.size() > 4) tail.erase(0, tail.size() - 4);
    return bounded->AcceptString(text);
  }

  bool begin_with(std::string_view text) {
    while (!text.empty()) {
      const auto starts = [&](const auto& mark) { return text.starts_with(mark.first); };
      const auto mark = std::ranges::find_if(grammar.marks, starts);
      size_t bytes = 1;
      if (mark != grammar.marks.end()) {
        if (!matcher->AcceptToken(mark->second) || !count(mark->first)) return false;
        bytes = mark->first.size();
      } else {
        bytes = std::max<size_t>(utf8_length(text), 1);
        const std::string character(text.substr(0, bytes));
        if (!matcher->AcceptString(character) || !count(character)) return false;
      }
      text.remove_prefix(bytes);
    }
    return true;
  }

  const Error& run(double max_seconds, const auto& f) {
    if (failure) return failure;
    const GrammarTimeLimit limit(max_seconds);
    failure = call_library("grammar", f);
    return failure;
  }
};

GrammarMatcher::GrammarMatcher(const Grammar& grammar, std::span<const int32_t> eos_ids, double max_seconds) {
  const int size = grammar.vocabulary->info.GetVocabSize();
  std::optional<std::vector<int>> ends(std::in_place, eos_ids.begin(), eos_ids.end());
  std::erase_if(*ends, [size](int id) { return id < 0 || id >= size; });
  state_.reset(new State{.grammar = grammar, .ends = *ends});
  if (ends->empty()) ends.reset();
  state_->bits.resize(xgrammar::GetBitmaskSize(size));
  state_->run(max_seconds, [&] {
    state_->matcher.emplace(grammar.compiled, ends);
    if (grammar.bounded) state_->bounded.emplace(*grammar.bounded);
  });
}

GrammarMatcher::~GrammarMatcher() = default;

Error GrammarMatcher::fill_mask(std::span<uint32_t> allowed, double max_seconds) {
  std::vector<uint32_t>& bits = state_->bits;
  int64_t words = std::ssize(bits);
  DLTensor tensor = {bits.data(), {kDLCPU, 0}, 1, xgrammar::GetBitmaskDLType(), &words, nullptr, 0};
  const auto fill = [&] {
    state_->matcher->FillNextTokenBitmask(&tensor);
    if (state_->bounded) state_->clear_too_long();
    if (state_->grammar.counts_digits && state_->position.digits > 0) state_->clear_digits();
  };
  if (Error e = state_->run(max_seconds, fill)) return e;
  std::ranges::fill(allowed, 0);
  std::ranges::copy(std::span(bits).first(std::min(bits.size(), allowed.size())), allowed.begin());
  const bool is_end = std::ranges::all_of(allowed, [](uint32_t word) { return word == 0; });
  if (!is_end || state_->matcher->IsCompleted()) return {};
  return error("no token of this vocabulary continues the text", "grammar");
}

Error GrammarMatcher::accept(int32_t id, double max_seconds) {
  bool is_accepted = false;
  if (Error e = state_->run(max_seconds, [&] { is_accepted = state_->accept(id); })) return e;
  return is_accepted ? Error{} : error("does not allow the token", "grammar", {}, id);
}

Error GrammarMatcher::begin_with(const std::string& text, double max_seconds) {
  bool is_accepted = false;
  if (Error e = state_->run(max_seconds, [&] { is_accepted = state_->begin_with(text); })) return e;
  return is_accepted ? Error{} : error("does not allow the beginning of the answer", "grammar");
}

std::string GrammarMatcher::jump_forward(double max_seconds) {
  std::string text;
  auto& exact = state_->bounded ? state_->bounded : state_->matcher;
  state_->run(max_seconds, [&] { text = exact->FindJumpForwardString(); });
  return text;
}

}  // namespace pinion
