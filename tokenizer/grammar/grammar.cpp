#include "tokenizer/grammar/grammar.h"

#include <xgrammar/xgrammar.h>

#include <algorithm>
#include <bit>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

#include "tokenizer/grammar/hooks.h"
#include "tokenizer/grammar/json_schema.h"
#include "tokenizer/grammar/pattern.h"
#include "tokenizer/grammar/schema_texts.h"
#include "tokenizer/templates/limited_run.h"
#include "tokenizer/tokens/unicode.h"

namespace pinion {

namespace {

constexpr int kMany = 64;

// What counts of a token where a text may have so many characters and no more.
struct Spelling {
  uint8_t characters;  // at most, or kMany for more
  bool has_quote;
};

struct Vocabulary {
  xgrammar::TokenizerInfo info;
  std::vector<Spelling> spellings;  // by id
  std::vector<uint32_t> unusual;    // bits of the tokens that have a quote or many characters
};

}  // namespace

struct Grammar {
  std::shared_ptr<const Vocabulary> vocabulary;
  xgrammar::CompiledGrammar compiled;
  // Of a schema with maxLength. A mask of what is counted would take a tenth of a second. So the grammar above leaves
  // maxLength out, and this one, for a vocabulary of single bytes, is asked how many characters still fit.
  std::optional<xgrammar::CompiledGrammar> bounded = {};

  size_t bytes() const { return compiled.MemorySizeBytes() + (bounded ? bounded->MemorySizeBytes() : 0); }
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

Spelling spelling_of(const std::string& bytes) {
  const auto starts_character = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
  const auto count = std::max<int64_t>(std::ranges::count_if(bytes, starts_character), !bytes.empty());
  return {static_cast<uint8_t>(std::min<int64_t>(count, kMany)), bytes.find('"') != bytes.npos};
}

// Every `share`-th token, and all of one byte, so that any text can be spelled.
std::shared_ptr<const Vocabulary> vocabulary_of(const Tokenizer& tokenizer, int share) {
  const int32_t size = vocab_size(tokenizer);
  const auto count = static_cast<size_t>(size);
  std::vector<std::string> tokens(count);
  std::vector<Spelling> spellings(count);
  std::vector<uint32_t> unusual(count / 32 + 1);
  for (size_t id = 0; id < count; ++id) {
    std::string bytes = token_bytes(tokenizer, static_cast<int32_t>(id));
    if (id % static_cast<size_t>(share) != 0 && bytes.size() != 1) continue;
    spellings[id] = spelling_of(bytes);
    unusual[id / 32] |= uint32_t{spellings[id].has_quote || spellings[id].characters == kMany} << id % 32;
    tokens[id] = std::move(bytes);
  }
  return std::make_shared<Vocabulary>(
      Vocabulary{{tokens, xgrammar::VocabType::RAW, size, std::vector<int32_t>()}, spellings, unusual});
}

bool ends_within_character(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(text.size(), 3); ++back) {
    const std::string_view last = text.substr(text.size() - back);
    const auto c = static_cast<unsigned char>(last[0]);
    if ((c & 0xC0) != 0x80) return c >= 0xC0 && utf8_length(last) == 0;
  }
  return false;
}

xgrammar::TokenizerInfo byte_vocabulary() {
  std::vector<std::string> bytes;
  for (int i = 0; i < 256; ++i) bytes.emplace_back(1, static_cast<char>(i));
  return {bytes, xgrammar::VocabType::RAW, 256, std::vector<int32_t>()};
}

// Does what every text needs first, which may take too much already.
Error begin_text(const Grammar& grammar, double most_seconds) {
  GrammarText text(grammar, {}, most_seconds);
  std::vector<uint32_t> bits(static_cast<size_t>(xgrammar::GetBitmaskSize(grammar.vocabulary->info.GetVocabSize())));
  text.foreseen(most_seconds);  // fails with the next call
  return text.next(bits, most_seconds);
}

}  // namespace

struct GrammarCompiler::Library {
  std::shared_ptr<const Vocabulary> vocabulary;
  xgrammar::GrammarCompiler compiler;

  Grammar grammar_of(const GrammarSource& source) const {
    nlohmann::ordered_json schema;
    if (source.kind == GrammarSource::Kind::json_schema) schema = nlohmann::ordered_json::parse(source.text);
    if (!leave_out_longest(schema)) return {vocabulary, compile_source(compiler, source)};
    return {vocabulary, compile_source(compiler, {.kind = source.kind, .text = schema.dump()}),
            compile_source(xgrammar::GrammarCompiler(byte_vocabulary(), 1, false), source)};
  }
};

GrammarCompiler::GrammarCompiler(std::shared_ptr<const Tokenizer> tokenizer) : tokenizer_(std::move(tokenizer)) {}

GrammarCompiler::~GrammarCompiler() = default;

const GrammarCompiler::Library& GrammarCompiler::library(Lazy& lazy, int share) {
  std::call_once(lazy.once, [&] {
    const auto vocabulary = vocabulary_of(*tokenizer_, share);
    lazy.library.reset(new Library{vocabulary, xgrammar::GrammarCompiler(vocabulary->info, 1, false)});
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
  Error e = guarded(where, [&] { *out = std::make_shared<Grammar>(library(whole_, 1).grammar_of(given)); });
  if (!e) keep({source, is_trusted, *out, source.text.size() + (*out)->bytes()});
  return e;
}

Error GrammarCompiler::try_out(const GrammarSource& source, const std::string& where, std::string* text) {
  const Library* trial = nullptr;
  if (Error e = guarded(where, [&] { trial = &library(trial_, kTrialShare); })) return e;
  const auto compile_part = [&](std::string* made) {
    if (Error e = completed(source, where, made)) return e;
    std::optional<Grammar> grammar;
    Error e = guarded(where, [&] { grammar.emplace(trial->grammar_of({.kind = source.kind, .text = *made})); });
    return e ? e : begin_text(*grammar, kMostMaskSeconds / kTrialShare);
  };
  return run_limited(compile_part, where, text, kTrialLimits);
}

struct GrammarText::Matcher {
  const Grammar& grammar;
  std::optional<xgrammar::GrammarMatcher> matcher = {}, bounded = {};
  std::string tail = {};            // of the text so far, the last bytes
  int spare = 0;                    // so many characters are sure to fit
  Error failure = {};               // the first one: what the library holds may be of no use behind it
  std::vector<uint32_t> bits = {};  // of the tokenizer's vocabulary; the logits' may be larger or smaller

  const std::string& bytes_of(size_t id) const { return grammar.vocabulary->info.GetDecodedVocab()[id]; }

  static bool takes(xgrammar::GrammarMatcher& one, const std::string& text) {
    const bool is_taken = one.AcceptString(text);
    if (is_taken) one.Rollback(1);
    return is_taken;
  }

  // How many characters more the text can hold that is being written, at most `most`.
  int room(int most) {
    int count = 0;
    while (count < most && bounded->AcceptString("a")) ++count;
    if (count > 0) bounded->Rollback(count);
    return count;
  }

  // Takes tokens out of `bits` with which a text would get too long, and those of more than kMany characters.
  void keep_to_bounds() {
    if (spare < kMany) spare = room(4 * kMany);
    int left = std::min(spare, kMany);
    if (left == 0 && bounded->AcceptString("r")) {  // behind a backslash
      left = 1 + room(kMany - 1);
      bounded->Rollback(1);
    }
    const bool is_full = left == 0 && takes(*matcher, "a"), is_within_character = ends_within_character(tail);
    const auto fits = [&](size_t id) {
      const Spelling& token = grammar.vocabulary->spellings[id];
      if (token.characters == 0) return true;  // of no bytes
      if (token.has_quote || is_within_character) return takes(*bounded, bytes_of(id));
      return left > 0 ? token.characters <= left && token.characters < kMany : !is_full;
    };
    const bool is_roomy = left == kMany && !is_within_character;
    for (size_t word = 0; word < bits.size(); ++word) {
      for (uint32_t rest = bits[word] & (is_roomy ? grammar.vocabulary->unusual[word] : ~0u); rest != 0;
           rest &= rest - 1) {
        const auto bit = static_cast<size_t>(std::countr_zero(rest));
        const size_t id = word * 32 + bit;
        if (id < grammar.vocabulary->spellings.size() && !fits(id)) bits[word] &= ~(uint32_t{1} << bit);
      }
    }
  }

  bool add(int32_t id) {
    if (!matcher->AcceptToken(id)) return false;
    const std::string& bytes = bytes_of(static_cast<size_t>(id));
    if (!bounded || bytes.empty()) return true;
    const Spelling& token = grammar.vocabulary->spellings[static_cast<size_t>(id)];
    spare = token.has_quote ? 0 : std::max(0, spare - token.characters);
    tail += bytes;
    if (tail.size() > 4) tail.erase(0, tail.size() - 4);
    return bounded->AcceptString(bytes);
  }

  const Error& ask(double most_seconds, const auto& f) {
    if (failure) return failure;
    const GrammarLimit limit(most_seconds);
    failure = guarded("grammar", f);
    return failure;
  }
};

GrammarText::GrammarText(const Grammar& grammar, std::span<const int32_t> eos_ids, double most_seconds) {
  const int size = grammar.vocabulary->info.GetVocabSize();
  std::optional<std::vector<int>> ends(std::in_place, eos_ids.begin(), eos_ids.end());
  std::erase_if(*ends, [size](int id) { return id < 0 || id >= size; });
  if (ends->empty()) ends.reset();
  matcher_.reset(new Matcher{.grammar = grammar});
  matcher_->bits.resize(static_cast<size_t>(xgrammar::GetBitmaskSize(size)));
  matcher_->ask(most_seconds, [&] {
    matcher_->matcher.emplace(grammar.compiled, ends);
    if (grammar.bounded) matcher_->bounded.emplace(*grammar.bounded);
  });
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
  const auto fill = [&] {
    matcher_->matcher->FillNextTokenBitmask(&bits);
    if (matcher_->bounded) matcher_->keep_to_bounds();
  };
  if (Error e = matcher_->ask(most_seconds, fill)) return e;
  std::ranges::fill(allowed, 0);
  std::ranges::copy(std::span(own).first(std::min(own.size(), allowed.size())), allowed.begin());
  const bool is_end = std::ranges::all_of(allowed, [](uint32_t word) { return word == 0; });
  if (!is_end || matcher_->matcher->IsCompleted()) return {};
  return error("no token of this vocabulary can go on with the text", "grammar");
}

Error GrammarText::add(int32_t id, double most_seconds) {
  bool is_taken = false;
  if (Error e = matcher_->ask(most_seconds, [&] { is_taken = matcher_->add(id); })) return e;
  return is_taken ? Error{} : error("does not allow the token", "grammar", {}, std::to_string(id));
}

std::string GrammarText::foreseen(double most_seconds) {
  std::string text;
  matcher_->ask(most_seconds, [&] {
    xgrammar::GrammarMatcher& exact = matcher_->bounded ? *matcher_->bounded : *matcher_->matcher;
    text = exact.FindJumpForwardString();
  });
  return text;
}

}  // namespace pinion
