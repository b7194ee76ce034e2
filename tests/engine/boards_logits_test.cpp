// Logits that other boards send to board 0: their number, and equality of the drawn tokens with those of one board.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/session/speculation.h"
#include "kernels/half.h"
#include "loader/files/mapped_file.h"
#include "tests/engine/batch.h"
#include "tests/engine/boards.h"
#include "tests/engine/one_result.h"
#include "tests/loader/make_files.h"

namespace pinion {
namespace {

// The stories model with changed embeddings, which are also its head. change: edits the row of an id.
void write_stories(const TempFolder& folder, const std::function<void(int32_t id, std::span<bf16> row)>& change) {
  std::string config, file;
  ASSERT_FALSE(read_text_file(kStories + "/config.json", 1 << 20, &config));
  ASSERT_FALSE(read_text_file(kStories + "/model.safetensors", 1 << 24, &file));
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), sizeof header_bytes);
  const nlohmann::json header = nlohmann::json::parse(file.substr(sizeof header_bytes, header_bytes));
  const nlohmann::json& tensor = header["model.embed_tokens.weight"];
  const size_t begin = sizeof header_bytes + header_bytes + tensor["data_offsets"][0].get<size_t>();
  const size_t vocab = tensor["shape"][0], width = tensor["shape"][1];
  ASSERT_EQ(tensor["dtype"], "BF16");
  std::vector<bf16> numbers(vocab * width);
  std::memcpy(numbers.data(), file.data() + begin, numbers.size() * sizeof(bf16));
  for (size_t id = 0; id < vocab; ++id) change(static_cast<int32_t>(id), std::span(numbers).subspan(id * width, width));
  std::memcpy(file.data() + begin, numbers.data(), numbers.size() * sizeof(bf16));
  folder.write("config.json", config);
  folder.write("model.safetensors", file);
}

// All ids with the same remainder by 128 have the same embedding and logit: four of each, on different boards.
void write_ties(const TempFolder& folder) {
  std::vector<std::vector<bf16>> firsts;
  write_stories(folder, [&](int32_t id, std::span<bf16> row) {
    if (id < 128) {
      firsts.emplace_back(row.begin(), row.end());
    } else {
      std::ranges::copy(firsts[static_cast<size_t>(id % 128)], row.begin());
    }
  });
}

struct DrawnOnBoards {
  const char* name;
  SamplerOptions sampler;
  std::optional<int32_t> logprobs = {};
  int64_t candidates;  // sent by each board; 0: all logits
};

const DrawnOnBoards kDrawn[] = {
    {.name = "greedy", .sampler = {}, .candidates = 1},
    {.name = "top-k", .sampler = {.temperature = 0.8f, .top_k = 40, .seed = 5}, .candidates = 40},
    {.name = "filters",
     .sampler = {.temperature = 1.5f, .top_k = 90, .top_p = 0.9f, .min_p = 0.02f, .seed = 6},
     .candidates = 90},
    {.name = "more than panels have columns",
     .sampler = {.temperature = 3, .top_k = 200, .seed = 8},
     .candidates = 200},
    {.name = "no top-k", .sampler = {.temperature = 1, .top_p = 0.9f, .seed = 7}, .candidates = 0},
    {.name = "penalty", .sampler = {.repetition_penalty = 1.3f}, .candidates = 0},
    {.name = "log probabilities", .sampler = {}, .logprobs = 2, .candidates = 0},
};

// Sizes of the logits' gathers in a pass of `rows` rows, negative as in Exchange::Traffic.
std::vector<int64_t> sizes_of_logits(const Model& model, int64_t candidates, int64_t rows) {
  const Division& columns = model.head.rows;
  if (candidates == 0) {
    std::vector<int64_t> sizes;
    for (int64_t row = 0; row < rows; ++row) {
      sizes.insert(sizes.end(), {-columns.count * 4, -panel_count(columns.count) * 4});
    }
    return sizes;
  }
  int64_t sent = 0;
  for (int32_t board = 1; board < model.shares().ranks; ++board) {
    sent += std::min(candidates, columns.of(model.shares(), board).count);
  }
  return {-rows * sent * 8};
}

void expect_few_logits_sent(const Model& alone, const Model& shared) {
  Team team({-1});
  std::unique_ptr<Session> session, of_one;
  ASSERT_FALSE(open_session(shared, team, {}, &session));
  ASSERT_FALSE(open_session(alone, team, {}, &of_one));
  Exchange::Traffic& traffic = shared.exchange->traffic;
  traffic.records_sizes = true;
  for (const DrawnOnBoards& drawn : kDrawn) {
    SCOPED_TRACE(drawn.name);
    const TextCase text = {.prompt = {1, 70, 33, 200, 70, 33},
                           .options = {.max_tokens = 6,
                                       .sampler = drawn.sampler,
                                       .ignore_eos = true,
                                       .hash_logits = false,
                                       .logprobs = drawn.logprobs},
                           .stop_after = 100};
    const GenerateResult expected = pinion::alone(*of_one, text);
    for (const bool drafts : {false, true}) {
      session->fixed_drafts = 3;
      session->speculates = drafts;
      rewind(session->sequence, 0);
      traffic.sizes.clear();
      const GenerateResult result = pinion::alone(*session, text);
      EXPECT_EQ(result.ids, expected.ids) << drafts;
      EXPECT_EQ(result.logprobs, expected.logprobs);
      std::erase_if(traffic.sizes, [](int64_t size) { return size > 0; });
      if (drafts) continue;
      std::vector<int64_t> sizes;
      for (size_t i = 0; i < expected.ids.size(); ++i) {
        const std::vector<int64_t> one = sizes_of_logits(shared, drawn.candidates, 1);
        sizes.insert(sizes.end(), one.begin(), one.end());
      }
      EXPECT_EQ(traffic.sizes, sizes);
    }
  }
}

TEST(BoardsLogits, OnlyNeededLogitsAreSent) {
  const TempFolder ties;
  ASSERT_NO_FATAL_FAILURE(write_ties(ties));
  for (const auto& [folder, ranks] : std::vector<std::pair<std::string, int32_t>>{
           {ties.string(), 2}, {ties.string(), 3}, {ties.string(), 4}, {kStories, 4}}) {
    SCOPED_TRACE(folder + " on " + std::to_string(ranks));
    std::unique_ptr<Model> model;
    ASSERT_FALSE(load_model(folder, {}, &model));
    with_shared_model(folder, {}, ranks, 4, [&](const Model& shared) { expect_few_logits_sent(*model, shared); });
  }
}

// Several rows, as with drafts: all logits of board 0, candidates of the others.
TEST(BoardsLogits, CandidatesOfSeveralRowsInOneGather) {
  std::unique_ptr<Model> model;
  ASSERT_FALSE(load_model(kStories, {}, &model));
  const auto vocab = static_cast<size_t>(model->config.vocab_size);
  const std::vector<int32_t> ids = some_tokens(5, model->config.vocab_size);
  const std::vector<float> alone = all_logits(*model, ids, 5, {});
  with_shared_model(kStories, {}, 3, 4, [&](const Model& shared) {
    Team team({-1});
    std::unique_ptr<Session> session;
    ASSERT_FALSE(open_session(shared, team, {}, &session));
    shared.exchange->traffic = {};
    shared.exchange->traffic.records_sizes = true;
    std::vector<float> logits(alone.size());
    ASSERT_FALSE(evaluate(*session, ids, true, logits.data(), 2));
    EXPECT_EQ(shared.exchange->traffic.sizes.back(), sizes_of_logits(shared, 2, 5).back());
    const auto first = static_cast<size_t>(shared.head.rows.of(shared.shares(), 1).first);
    for (size_t row = 0; row < ids.size(); ++row) {
      const auto of_row = [&](const std::vector<float>& all) { return std::span(all).subspan(row * vocab, vocab); };
      EXPECT_TRUE(std::ranges::equal(of_row(logits).first(first), of_row(alone).first(first)));
      int64_t received = 0;
      for (size_t id = first; id < vocab; ++id) {
        if (of_row(logits)[id] == -std::numeric_limits<float>::infinity()) continue;
        EXPECT_EQ(of_row(logits)[id], of_row(alone)[id]) << id;
        ++received;
      }
      EXPECT_EQ(received, 4) << "two from each other board";
      const auto likeliest = std::ranges::max_element(of_row(alone)) - of_row(alone).begin();
      EXPECT_EQ(std::ranges::count(panel_best(*session, static_cast<int64_t>(row)), likeliest), 1);
    }
  });
}

// Infinity in one logit, on each of the boards.
TEST(BoardsLogits, NonFiniteLogitsAreAnError) {
  for (const int32_t infinite : {3, 200, 511}) {
    const TempFolder folder;
    ASSERT_NO_FATAL_FAILURE(write_stories(folder, [&](int32_t id, std::span<bf16> row) {
      if (id == infinite) std::ranges::fill(row, to_bf16(3e38f));
    }));
    with_shared_model(folder.string(), {.quant = Quant::none}, 3, 4, [&](const Model& shared) {
      Team team({-1});
      std::unique_ptr<Session> session;
      ASSERT_FALSE(open_session(shared, team, {.kv = KvType::f32}, &session));
      for (const SamplerOptions& sampler : {SamplerOptions{}, SamplerOptions{.temperature = 1, .top_k = 5}}) {
        GenerateResult result;
        const Error e = generate(
            *session, std::vector<int32_t>{1, 70, 33}, {.max_tokens = 4, .sampler = sampler, .hash_logits = false},
            [](int32_t) { return true; }, &result);
        EXPECT_NE(e.message().find("NaN or infinity, first from head;"), std::string::npos) << infinite << e.message();
        EXPECT_TRUE(session->sequence.ids.empty());
      }
    });
  }
}

}  // namespace
}  // namespace pinion
