// Several boards that share a model: its division, and equality with the bits of one board.
#include "tests/engine/boards.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "engine/session/session_image.h"
#include "tests/engine/batch.h"
#include "tests/engine/families.h"
#include "tests/engine/one_result.h"
#include "tests/temp_folder.h"

namespace pinion {
namespace {

const std::string kDemo = PINION_SOURCE_DIR "/configs/demo";

TEST(Shares, UnitsAreWholeAndConsecutive) {
  const Division columns = {300, 64};  // five panels, the last one of 44 columns
  const auto of = [&](int32_t ranks, int32_t board) {
    const RowRange range = columns.of({.ranks = ranks}, board);
    return std::array{range.first, range.count};
  };
  EXPECT_EQ(of(1, 0), (std::array<int64_t, 2>{0, 300}));
  EXPECT_EQ(of(2, 0), (std::array<int64_t, 2>{0, 192}));
  EXPECT_EQ(of(2, 1), (std::array<int64_t, 2>{192, 108}));
  EXPECT_EQ(of(4, 0), (std::array<int64_t, 2>{0, 128}));
  EXPECT_EQ(of(4, 1), (std::array<int64_t, 2>{128, 64}));
  EXPECT_EQ(of(4, 2), (std::array<int64_t, 2>{192, 64}));
  EXPECT_EQ(of(4, 3), (std::array<int64_t, 2>{256, 44}));
}

TEST(Shares, SingleUnitBelongsToBoard0) {
  const Division columns = {40, 40};
  EXPECT_EQ(columns.of({.ranks = 3}, 0).count, 40);
  for (const int32_t board : {1, 2}) {
    EXPECT_EQ(columns.of({.ranks = 3}, board).first, 40);
    EXPECT_EQ(columns.of({.ranks = 3}, board).count, 0);
  }
}

TEST(Shares, FasterBoardsGetLargerShares) {
  const Shares shares = {.ranks = 3, .bounds = bounds_by_speed({3.0, 1.0, 2.0})};
  EXPECT_EQ(shares.bounds, (std::vector<double>{0, 0.5, 4.0 / 6.0, 1}));
  for (const auto& [units, begins] : std::vector<std::pair<int64_t, std::array<int64_t, 4>>>{
           {12, {0, 6, 8, 12}}, {5, {0, 3, 3, 5}}, {1, {0, 1, 1, 1}}, {0, {0, 0, 0, 0}}}) {
    for (int32_t board = 0; board <= 3; ++board) EXPECT_EQ(shares.begin(units, board), begins[board]) << units;
  }
}

// Numbers of heads and panels that are no multiple of the boards; one board has almost nothing.
TEST(Boards, UnevenSharesGiveTheSameBits) {
  const std::vector<double> speeds[] = {{1.0, 2.5}, {5.0, 0.01, 3.0}};
  for (const std::vector<double>& each : speeds) {
    std::unique_ptr<Model> model;
    ASSERT_FALSE(load_model(kDemo, {}, &model));
    const std::vector<int32_t> ids = some_tokens(40, model->config.vocab_size);
    const pinion::Run run = {1, {.kv = KvType::q8, .pass_rows = 16}};
    const std::vector<float> alone = all_logits(*model, ids, 35, run);
    std::vector<int64_t> sizes;
    with_shared_model(
        kDemo, {}, static_cast<int32_t>(each.size()), kPanelColumns,
        [&](const Model& shared) { EXPECT_TRUE(same_bits(all_logits(shared, ids, 35, run), alone)); }, &sizes,
        bounds_by_speed(each));
    for (size_t i = 1; i < each.size(); ++i) EXPECT_EQ(sizes[i] > sizes[0], each[i] > each[0]) << i;
  }
}

// The gathers of a pass can be repeated without the pass.
TEST(Boards, GathersOfAPassAreRecorded) {
  with_shared_model(kStories, {}, 2, 4, [&](const Model& shared) {
    Team team({-1});
    std::unique_ptr<Session> session;
    ASSERT_FALSE(open_session(shared, team, {}, &session));
    std::vector<float> logits(shared.config.vocab_size);
    ASSERT_FALSE(evaluate(*session, some_tokens(3, 100), false, logits.data()));
    Exchange& exchange = *shared.exchange;
    exchange.traffic = {};
    exchange.traffic.records_sizes = true;
    ASSERT_FALSE(evaluate(*session, some_tokens(1, 100), false, logits.data()));
    const ModelConfig& c = shared.config;
    EXPECT_EQ(exchange.traffic.gathers, 4 * c.layers + 2);
    ASSERT_EQ(std::ssize(exchange.traffic.sizes), exchange.traffic.gathers);
    EXPECT_EQ(exchange.traffic.sizes[0], c.layer[0].heads * c.layer[0].head_dim * 4);
    EXPECT_EQ(exchange.traffic.sizes[1], c.hidden_size * 4);
    EXPECT_EQ(exchange.traffic.sizes[2], c.layer[0].mlp_size * 4);
    EXPECT_EQ(exchange.traffic.sizes[exchange.traffic.sizes.size() - 2], -c.vocab_size * 4);
    exchange.traffic.sizes.clear();
    ASSERT_FALSE(evaluate(*session, some_tokens(1, 100), false, logits.data(), 3));
    EXPECT_EQ(std::ssize(exchange.traffic.sizes), 4 * c.layers + 1);
    EXPECT_EQ(exchange.traffic.sizes.back(), -3 * 8) << "three logits of one board, with their ids";
  });
  on_boards(3, kPanelColumns, [](Exchange& exchange) {
    EXPECT_GE(time_gathers(exchange, std::vector<int64_t>{4096, -640, 3}, 5), 0);
    EXPECT_EQ(values_of_all(exchange, exchange.shares().rank), (std::vector{0, 1, 2}));
  });
}

// Only passes that board 0 profiles count.
TEST(Boards, ProfilesOfAllBoards) {
  with_shared_model(kStories, {}, 3, 4, [&](const Model& shared) {
    Team team({-1});
    std::unique_ptr<Session> session;
    ASSERT_FALSE(open_session(shared, team, {}, &session));
    const auto pass = [&] { ASSERT_FALSE(evaluate(*session, some_tokens(2, 100), false, nullptr)); };
    Profile own;
    own.workers.resize(1);
    pass();
    for (const BoardProfile& none : session->followers.profiles(own)) EXPECT_EQ(none.exchange_ns, 0);
    session->profile = &own;
    pass();
    session->profile = nullptr;
    pass();
    const std::vector<BoardProfile> boards = session->followers.profiles(own);
    ASSERT_EQ(boards.size(), 3u);
    const auto of = [](const BoardProfile& board, Stage stage) { return board.stages[static_cast<size_t>(stage)]; };
    for (const BoardProfile& board : boards) {
      EXPECT_GT(of(board, Stage::down).work_ns, 0);
      EXPECT_EQ(of(board, Stage::head).work_ns, 0) << "no logits were requested";
      EXPECT_GT(board.exchange_ns, 0);
    }
    EXPECT_EQ(of(boards[0], Stage::down).work_ns, own.workers[0].stages[static_cast<size_t>(Stage::down)].work_ns);
    const std::vector<BoardProfile> later = session->followers.profiles({});
    for (const BoardProfile& board : later) EXPECT_EQ(of(board, Stage::down).work_ns, 0) << "already reported";
  });
}

TEST(Agree, AllBoardsGetTheFirstFailure) {
  on_boards(3, kPanelColumns, [](Exchange& exchange) {
    const int32_t rank = exchange.shares().rank;
    EXPECT_FALSE(agree(exchange, {}));
    const Error own = rank == 0 ? Error{} : error("too small", "disk " + std::to_string(rank), "1", "0");
    const std::string message = agree(exchange, own).message();
    EXPECT_EQ(message, rank == 2   ? own.message()
                       : rank == 1 ? own.message()
                                   : "board 1: disk 1: too small: want 1, have 0");
    EXPECT_FALSE(agree(exchange, error(std::string(5000, 'x'), "")).message().empty());
    EXPECT_FALSE(agree_on(exchange, 7, "differs"));
    EXPECT_EQ(agree_on(exchange, rank == 2 ? 8 : 7, "differs").message(), "board 2: differs");
  });
}

struct SharedFamilies : testing::TestWithParam<std::string> {};

void expect_same_logits(const std::string& folder, const LoadOptions& options, int32_t ranks, int64_t unit,
                        int64_t tokens, const Run& run) {
  std::unique_ptr<Model> model;
  const Error e = load_model(folder, options, &model);
  ASSERT_FALSE(e) << e.message();
  const std::vector<int32_t> ids = some_tokens(tokens, model->config.vocab_size);
  const std::vector<float> alone = all_logits(*model, ids, tokens - 5, run);
  with_shared_model(folder, options, ranks, unit, [&](const Model& shared) {
    EXPECT_TRUE(same_bits(all_logits(shared, ids, tokens - 5, run), alone))
        << kQuantNames[static_cast<size_t>(options.quant)] << " on " << ranks << " boards";
  });
}

// In these small models whole panels would all go to one board; units of 4 rows give each board some.
TEST_P(SharedFamilies, HaveTheBitsOfOneBoard) {
  constexpr struct {
    Quant quant;
    KvType kv;
    int32_t ranks;
  } kModes[] = {{Quant::none, KvType::f32, 2}, {Quant::w8a8, KvType::q8, 3}, {Quant::w4a8, KvType::bf16, 4}};
  for (const auto& [quant, kv, ranks] : kModes) {
    ASSERT_NO_FATAL_FAILURE(expect_same_logits(kFamilyFolders / GetParam(), {.quant = quant}, ranks, 4, 19,
                                               {1, {.kv = kv, .pass_rows = 6}}));
  }
}

INSTANTIATE_TEST_SUITE_P(Boards, SharedFamilies, testing::ValuesIn(family_names(FamilyTest::boards)),
                         [](const auto& family) { return family.param; });

// Slow builds take three of the nine pairs, others than above.
TEST(Boards, DemoModelIsDividedByPanels) {
  constexpr Quant kModes[] = {Quant::none, Quant::w8a8, Quant::w4a8};
  for (const int32_t ranks : {2, 3, 4}) {
    for (const Quant quant : kModes) {
      if (kIsSlowBuild && quant != kModes[ranks % 3]) continue;
      const KvType kv = quant == Quant::none ? KvType::f32 : KvType::q8;
      ASSERT_NO_FATAL_FAILURE(
          expect_same_logits(kDemo, {.quant = quant}, ranks, kPanelColumns, 300, {2, {.kv = kv, .pass_rows = 100}}));
    }
  }
}

TEST(Boards, EachBoardCachesOnlyItsRows) {
  const TempFolder cache;
  std::unique_ptr<Model> whole;
  ASSERT_FALSE(load_model(kDemo, {.cache_folder = cache.string()}, &whole));
  std::vector<int64_t> sizes;
  const LoadOptions options = {.cache_folder = cache.string()};
  with_shared_model(
      kDemo, options, 3, kPanelColumns,
      [&](const Model& model) {
        EXPECT_NE(model.cache.path, whole->cache.path);
        EXPECT_FALSE(write_to_cache(model));
      },
      &sizes);
  const int64_t all = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  EXPECT_GE(all, whole->weight_bytes);
  EXPECT_LT(all, whole->weight_bytes * 11 / 10);  // heads of 48 rows leave some panels half empty
  for (const int64_t size : sizes) EXPECT_LT(size, whole->weight_bytes / 2);
  with_shared_model(kDemo, options, 3, kPanelColumns, [](const Model& model) { EXPECT_TRUE(model.from_cache()); });
}

// Shared prefixes copy blocks on every board.
TEST(Boards, SchedulerTextsEqualSingleBoardTexts) {
  std::unique_ptr<Model> model;
  ASSERT_FALSE(load_model(kStories, {}, &model));
  Team team({-1});
  std::unique_ptr<Session> session;
  ASSERT_FALSE(open_session(*model, team, {}, &session));
  std::mt19937 random(3);
  std::vector<TextCase> texts;
  const std::vector<int32_t> prefix = some_tokens(290, model->config.vocab_size);
  for (int i = 0; i < 10; ++i) {
    TextCase& text = texts.emplace_back(random_text(random, model->config.vocab_size, 20));
    text.options.hash_logits = i % 3 == 0;  // the others need few of the logits
    if (i % 2 == 0) text.prompt.insert(text.prompt.begin(), prefix.begin(), prefix.end());
  }
  with_shared_model(kStories, {}, 3, 4, [&](const Model& shared) {
    const auto scheduler = opened(shared, team, {.sequences = 4, .pass_rows = 96, .rows_beside_decode = 24});
    scheduler->fixed_drafts = 3;
    Batch batch{*scheduler};
    std::map<int64_t, size_t> submitted;
    for (size_t i = 0; i < texts.size(); ++i) submitted[batch.submit_any(texts[i])] = i;
    batch.finish();
    ASSERT_EQ(batch.results.size(), texts.size());
    for (const auto& [id, result] : batch.results) expect_same_text(alone(*session, texts[submitted.at(id)]), result);
    expect_nothing_held(*scheduler);
  });
}

TEST(Boards, FollowerReportsTooLittleMemory) {
  with_shared_model(kStories, {}, 2, 4, [&](const Model& shared) {
    Followers followers;
    const Error e = followers.open(shared.exchange, {1, 1, KvType::f32, int64_t{1} << 40});
    EXPECT_TRUE(e.message().starts_with("board 1: ")) << e.message();
    EXPECT_NE(e.message().find("too little memory"), std::string::npos) << e.message();
  });
}

TEST(Boards, SessionCannotBeSaved) {
  with_shared_model(kStories, {}, 2, 4, [&](const Model& shared) {
    Team team({-1});
    std::unique_ptr<Session> session;
    ASSERT_FALSE(open_session(shared, team, {}, &session));
    ASSERT_FALSE(evaluate(*session, some_tokens(3, 100), false, nullptr));
    std::unique_ptr<SessionImage> image;
    EXPECT_NE(make_image(*session, &image).message().find("several boards"), std::string::npos);
  });
}

}  // namespace
}  // namespace pinion
