#include "apps/cli/grammar_rules.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "kernels/base/clock.h"

namespace pinion {
namespace {

constexpr double kSecondsPerToken = 2e-3;

// Bits of ids, as TextRules has them; whether there is one for this id.
bool has_bit(std::span<const uint32_t> bits, int32_t id) { return id >= 0 && std::cmp_less(id / 32, bits.size()); }
void set_bit(std::span<uint32_t> bits, int32_t id) {
  if (has_bit(bits, id)) bits[static_cast<size_t>(id) / 32] |= uint32_t{1} << (id % 32);
}

class GrammarRules : public TextRules {
 public:
  explicit GrammarRules(std::shared_ptr<const GrammarOrder> order)
      : order_(std::move(order)), until_(order_->free_until) {
    state_ = until_.empty() ? State::opening : State::free;
  }

  Error begin(int64_t vocab_size, std::span<const int32_t> eos_ids) override {
    const Stopwatch watch(*this);
    ends_.assign(static_cast<size_t>((vocab_size + 31) / 32), 0);
    for (const int32_t id : eos_ids) set_bit(ends_, id);
    text_.emplace(*order_->grammar, eos_ids, left_seconds());
    return allow();
  }

  Error add(int32_t id) override {
    if (Error e = check_time()) return e;
    const Stopwatch watch(*this);
    switch (state_) {
      case State::free:
        end_free_part(id);
        break;
      case State::opening:
        if (const ReplyOpening* opening = opening_of(id)) {
          state_ = State::free;
          until_ = opening->until;
          break;
        }
        if (std::exchange(may_be_blank_, false) && is_blank(id)) break;
        state_ = State::kept;
        [[fallthrough]];
      case State::kept:
        if (Error e = text_->add(id, left_seconds())) return e;
    }
    return allow();
  }

  std::vector<int32_t> foreseen() override {
    const Stopwatch watch(*this);
    std::vector<int32_t> ids;
    const std::string text = state_ == State::kept ? text_->foreseen(left_seconds()) : "";
    if (text.empty() || encode(*order_->tokenizer, text, {.add_special = false, .parse_special = false}, &ids))
      return {};
    std::string spelled;
    for (const int32_t id : ids) spelled += token_bytes(*order_->tokenizer, id);
    if (spelled != text) return {};  // a blank was put in front, say
    ids.pop_back();                  // which may go on into what is not foreseen
    return ids;
  }

 private:
  enum class State : uint8_t {
    free,     // until until_
    opening,  // a text that keeps to the grammar begins, or something that may come before it
    kept,     // it goes on
  };

  // Of all that the grammar is asked.
  struct Stopwatch {
    explicit Stopwatch(GrammarRules& timed) : rules(timed), begun_seconds(thread_seconds()) {}
    ~Stopwatch() { rules.taken_seconds_ += thread_seconds() - begun_seconds; }
    GrammarRules& rules;
    double begun_seconds;
  };

  // At the start of the call that is being timed.
  double left_seconds() const {
    if (order_->most_seconds == 0) return GrammarText::kAnyTime;
    return order_->most_seconds + kSecondsPerToken * static_cast<double>(tokens_) - taken_seconds_;
  }

  Error check_time() {
    ++tokens_;
    if (left_seconds() > 0) return {};
    return error("takes too long: it reads the text in too many ways", "grammar");
  }

  const ReplyOpening* opening_of(int32_t id) const {
    const auto found = std::ranges::find(order_->openings, id, &ReplyOpening::id);
    return found == order_->openings.end() ? nullptr : &*found;
  }

  bool is_blank(int32_t id) const {
    const std::string bytes = token_bytes(*order_->tokenizer, id);
    return !bytes.empty() && bytes.find_first_not_of('\n') == std::string::npos;
  }

  void end_free_part(int32_t id) {
    if (until_.empty()) return;
    const std::string bytes = token_bytes(*order_->tokenizer, id);
    tail_ += bytes.empty() ? token_text(*order_->tokenizer, id) : bytes;
    if (tail_.find(until_) != std::string::npos) {
      tail_.clear();
      state_ = State::opening;
      may_be_blank_ = true;
    } else if (tail_.size() > until_.size()) {
      tail_.erase(0, tail_.size() - until_.size());
    }
  }

  Error allow() {
    if (state_ == State::free) {
      allowed.clear();  // any
      if (!until_.empty() && !order_->may_end_free) bar_ends();
      return {};
    }
    allowed.resize(ends_.size());
    if (Error e = text_->next(allowed, left_seconds())) return e;
    is_over = state_ == State::kept && is_at_end();
    if (state_ == State::kept) return {};
    for (const ReplyOpening& opening : order_->openings) set_bit(allowed, opening.id);
    if (may_be_blank_) {
      for (const int32_t id : blanks()) set_bit(allowed, id);
    }
    return {};
  }

  void bar_ends() {
    allowed = ends_;
    for (uint32_t& word : allowed) word = ~word;
  }

  // Whether nothing but an end of the text may come.
  bool is_at_end() const {
    const auto is_end = [](uint32_t may_come, uint32_t ends) { return (may_come & ~ends) == 0; };
    return std::equal(allowed.begin(), allowed.end(), ends_.begin(), is_end);
  }

  // One line end or two, as models write them after their thoughts.
  std::vector<int32_t> blanks() const {
    std::vector<int32_t> all;
    for (const char* text : {"\n", "\n\n"}) {
      std::vector<int32_t> ids;
      const EncodeOptions plain{.add_special = false, .parse_special = false};
      if (!encode(*order_->tokenizer, text, plain, &ids) && ids.size() == 1 && is_blank(ids[0])) all.push_back(ids[0]);
    }
    return all;
  }

  std::shared_ptr<const GrammarOrder> order_;
  std::optional<GrammarText> text_;
  State state_;
  std::string until_, tail_;
  std::vector<uint32_t> ends_;  // bits of the ids that end a text
  int64_t tokens_ = 0;
  double taken_seconds_ = 0;
  bool may_be_blank_ = false;
};

}  // namespace

MakeRules grammar_rules(GrammarOrder order) {
  return [order = std::make_shared<const GrammarOrder>(std::move(order))] {
    return std::make_unique<GrammarRules>(order);
  };
}

void add_grammar_options(Command app, GrammarFlags* flags) {
  Option schema = app.add_option("--json-schema", flags->json_schema,
                                 "Let only such JSON come as this schema allows (json-schema.org), in one line");
  schema.path("F");
  app.add_option("--grammar", flags->grammar, "Let only such text come as this grammar allows (GBNF, from root on)")
      .path("F")
      .excludes(schema);
}

Error read_grammar(const GrammarFlags& flags, const std::shared_ptr<const Tokenizer>& tokenizer, MakeRules* out) {
  if (!flags.any()) return {};
  const bool is_schema = !flags.json_schema.empty();
  if (!tokenizer) return error("needs a tokenizer", is_schema ? "--json-schema" : "--grammar");
  const std::string& file = is_schema ? flags.json_schema : flags.grammar;
  GrammarSource source{.kind = is_schema ? GrammarSource::Kind::json_schema : GrammarSource::Kind::ebnf};
  if (Error e = read_input(file, kMaxTextBytes, &source.text)) return e;
  std::shared_ptr<const Grammar> grammar;
  if (Error e = GrammarCompiler(tokenizer).compile(source, input_name(file), true, &grammar)) return e;
  *out = grammar_rules({.grammar = std::move(grammar), .tokenizer = tokenizer});
  return {};
}

}  // namespace pinion
