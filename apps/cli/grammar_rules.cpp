#include "apps/cli/grammar_rules.h"

#include <utility>

#include "kernels/base/clock.h"

namespace pinion {
namespace {

constexpr double kSecondsPerToken = 2e-3;
const EncodeOptions kPlain = {.add_special = false, .parse_special = false};

// Sets the bit of an id, which may exceed the mask, in the format of TextRules::allowed.
void set_bit(std::span<uint32_t> bits, int32_t id) {
  if (id >= 0 && std::cmp_less(id / 32, bits.size())) bits[id / 32] |= uint32_t{1} << (id % 32);
}

class GrammarRules : public TextRules {
 public:
  explicit GrammarRules(std::shared_ptr<const GrammarRulesOptions> options)
      : options_(std::move(options)), until_(options_->free_until) {
    state_ = until_.empty() ? State::opening : State::free;
  }

  Error begin(int64_t vocab_size, std::span<const int32_t> eos_ids) override {
    const Stopwatch watch(*this);
    ends_.assign((vocab_size + 31) / 32, 0);
    for (const int32_t id : eos_ids) set_bit(ends_, id);
    matcher_.emplace(*options_->grammar, eos_ids, left_seconds());
    if (!options_->begun.empty()) {
      state_ = State::constrained;
      if (Error e = matcher_->begin_with(options_->begun, left_seconds())) return e;
    }
    return allow();
  }

  Error add(int32_t id) override {
    ++tokens_;
    if (left_seconds() <= 0) return error("takes too long: the grammar is too ambiguous", "grammar");
    const Stopwatch watch(*this);
    switch (state_) {
      case State::free: add_to_free_text(id); break;
      case State::opening:
        if (const auto opening = std::ranges::find(options_->openings, id, &ReplyOpening::id);
            opening != options_->openings.end()) {
          state_ = State::free;
          until_ = opening->until;
          break;
        }
        if (std::exchange(may_be_newline_, false) && is_newlines(id)) break;
        state_ = State::constrained;
        [[fallthrough]];
      case State::constrained:
        if (Error e = matcher_->accept(id, left_seconds())) return e;
    }
    return allow();
  }

  std::vector<int32_t> jump_forward() override {
    const Stopwatch watch(*this);
    std::vector<int32_t> ids;
    const std::string text = state_ == State::constrained ? matcher_->jump_forward(left_seconds()) : "";
    if (text.empty() || encode(*options_->tokenizer, text, kPlain, &ids)) return {};
    std::string spelled;
    for (const int32_t id : ids) spelled += token_bytes(*options_->tokenizer, id);
    if (spelled != text) return {};  // the tokenizer added a leading space, for example
    ids.pop_back();                  // with the text after it, the last token may be a longer one
    return ids;
  }

 private:
  enum class State : uint8_t {
    free,         // unconstrained until until_
    opening,      // either the constrained text begins, or one of the openings
    constrained,  // within the constrained text
  };

  // Adds the CPU time of its lifetime to used_seconds_.
  struct Stopwatch {
    explicit Stopwatch(GrammarRules& timed) : rules(timed), start_seconds(thread_seconds()) {}
    ~Stopwatch() { rules.used_seconds_ += thread_seconds() - start_seconds; }
    GrammarRules& rules;
    double start_seconds;
  };

  // At the start of the current call: the stopwatch adds at its end.
  double left_seconds() const {
    if (options_->max_seconds == 0) return GrammarMatcher::kNoLimit;
    return options_->max_seconds + kSecondsPerToken * static_cast<double>(tokens_) - used_seconds_;
  }

  bool is_newlines(int32_t id) const {
    const std::string bytes = token_bytes(*options_->tokenizer, id);
    return !bytes.empty() && bytes.find_first_not_of('\n') == std::string::npos;
  }

  void add_to_free_text(int32_t id) {
    if (until_.empty()) return;
    const std::string bytes = token_bytes(*options_->tokenizer, id);
    tail_ += bytes.empty() ? token_text(*options_->tokenizer, id) : bytes;
    if (tail_.find(until_) != std::string::npos) {
      tail_.clear();
      state_ = State::opening;
      may_be_newline_ = true;
    } else if (tail_.size() > until_.size()) {
      tail_.erase(0, tail_.size() - until_.size());
    }
  }

  Error allow() {
    if (state_ == State::free) {
      allowed.clear();  // any token
      const bool may_end = until_.empty() || options_->may_end_free;
      if (!may_end) std::ranges::transform(ends_, std::back_inserter(allowed), std::bit_not());
      return {};
    }
    allowed.resize(ends_.size());
    if (Error e = matcher_->fill_mask(allowed, left_seconds())) return e;
    const auto is_end = [](uint32_t mask, uint32_t ends) { return (mask & ~ends) == 0; };
    is_complete = state_ == State::constrained && std::ranges::equal(allowed, ends_, is_end);
    if (state_ == State::constrained) return {};
    for (const ReplyOpening& opening : options_->openings) set_bit(allowed, opening.id);
    if (may_be_newline_) {
      for (const int32_t id : newline_ids()) set_bit(allowed, id);
    }
    return {};
  }

  // Tokens for one or two newlines, which models write after their thoughts.
  std::vector<int32_t> newline_ids() const {
    std::vector<int32_t> all;
    for (const char* text : {"\n", "\n\n"}) {
      std::vector<int32_t> ids;
      if (!encode(*options_->tokenizer, text, kPlain, &ids) && ids.size() == 1 && is_newlines(ids[0]))
        all.push_back(ids[0]);
    }
    return all;
  }

  std::shared_ptr<const GrammarRulesOptions> options_;
  std::optional<GrammarMatcher> matcher_;
  State state_;
  std::string until_, tail_;
  std::vector<uint32_t> ends_;  // mask of the ids that end a text
  int64_t tokens_ = 0;
  double used_seconds_ = 0;
  bool may_be_newline_ = false;
};

}  // namespace

MakeRules grammar_rules(GrammarRulesOptions options) {
  return [options = std::make_shared<const GrammarRulesOptions>(std::move(options))] {
    return std::make_unique<GrammarRules>(options);
  };
}

void add_grammar_options(Command app, GrammarFlags* flags) {
  Option schema = app.add_path("--json-schema F", flags->json_schema);
  app.add_path("--grammar F", flags->grammar).excludes(schema);
}

Error read_grammar(const GrammarFlags& flags, const std::shared_ptr<const Tokenizer>& tokenizer, MakeRules* out) {
  if (!flags.any()) return {};
  const bool is_schema = !flags.json_schema.empty();
  if (!tokenizer) return error("needs a tokenizer", is_schema ? "--json-schema" : "--grammar");
  const std::string& file = is_schema ? flags.json_schema : flags.grammar;
  GrammarSource source{.kind = is_schema ? GrammarSource::Kind::kJsonSchema : GrammarSource::Kind::kGbnf};
  if (Error e = read_input(file, kMaxTextBytes, &source.text)) return e;
  std::shared_ptr<const Grammar> grammar;
  if (Error e = GrammarCompiler(tokenizer).compile(source, input_name(file), true, &grammar)) return e;
  *out = grammar_rules({.grammar = std::move(grammar), .tokenizer = tokenizer});
  return {};
}

}  // namespace pinion
