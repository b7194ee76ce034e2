// All access patterns, whatever pattern the kernels of this CPU use.
#include "kernels/lanes/streams.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <vector>

namespace pinion {
namespace {

template <class Access>
class Streams : public testing::Test {};
template <size_t... Row>
testing::Types<AccessRow<Row>...> patterns(std::index_sequence<Row...>);
using AllPatterns = decltype(patterns(std::make_index_sequence<std::size(kAccessPatterns)>()));
TYPED_TEST_SUITE(Streams, AllPatterns);

template <class Access, int Rows>
void expect_every_step() {
  constexpr int64_t kStep = 4 * Rows;
  for (const int64_t row_bytes : {256, 768}) {
    for (int64_t k = kStep; k <= 160 * Rows; k += k < 40 * Rows ? kStep : 15 * kStep) {
      const std::vector<int8_t> a(k), b(k / 4 * row_bytes);
      std::set<int64_t> seen;
      for_each_four_k<Access, Rows>(a.data(), b.data(), row_bytes, k, [&](auto, const int8_t* x, const int8_t* w) {
        EXPECT_EQ((x - a.data()) * row_bytes, (w - b.data()) * 4);
        EXPECT_TRUE(seen.insert(x - a.data()).second) << "k " << k;
      });
      ASSERT_EQ(static_cast<int64_t>(seen.size()), k / kStep);
      EXPECT_EQ(*seen.begin(), 0);
      EXPECT_EQ(*seen.rbegin(), k - kStep);
    }
  }
}

TYPED_TEST(Streams, EveryFourKComeOnce) { expect_every_step<TypeParam, 1>(); }
TYPED_TEST(Streams, EverySixteenKComeOnce) { expect_every_step<TypeParam, 4>(); }

template <class Access, class Record>
void expect_every_record(int64_t groups, int64_t panels) {
  constexpr int64_t kRecordBytes = Record::kBytes;
  const std::vector<int8_t> a(groups * Record::kK);
  const std::vector<std::byte> records(panels * groups * kRecordBytes);
  std::vector<float> acc(panels * kPanelColumns);
  std::vector<int64_t> next_group(panels);  // of each panel; groups come in order
  int64_t group = -1;
  for_each_record<Access, Record>(
      a.data(), {records.data(), groups * Record::kK, Record::kFormat}, panels, acc.data(),
      [&](const int8_t* x) {
        group = (group + 1) % groups;
        EXPECT_EQ(x, a.data() + group * Record::kK);
      },
      [&](const std::byte* record, const std::byte* ahead, bool accumulate, const float* to) {
        constexpr int64_t kAhead = kRecordsAhead<Access, Record>;
        const int64_t panel = (to - acc.data()) / kPanelColumns;
        EXPECT_EQ(record, records.data() + (panel * groups + group) * kRecordBytes);
        if (group + kAhead < groups) {
          EXPECT_EQ(ahead, record + kAhead * kRecordBytes);
        } else {
          EXPECT_GT(ahead, record);  // in the next panel
        }
        EXPECT_EQ(accumulate, group > 0);
        EXPECT_EQ(next_group[panel]++, group);
      });
  EXPECT_EQ(next_group, std::vector<int64_t>(panels, groups));
}

TYPED_TEST(Streams, EveryRecordComesInItsPanelsOrder) {
  for (int64_t groups = 1; groups <= 4; ++groups) {
    for (int64_t panels = 1; panels <= 5; ++panels) {
      expect_every_record<TypeParam, RecordOf<Format::w4>>(groups, panels);
      expect_every_record<TypeParam, RecordOf<Format::w4z>>(groups, panels);
      expect_every_record<TypeParam, RecordOf<Format::w2>>(groups, panels);
      expect_every_record<TypeParam, RecordOf<Format::mxfp4>>(groups, panels);
      expect_every_record<TypeParam, RecordOf<Format::w4n>>(groups, panels);
      expect_every_record<TypeParam, RecordOf<Format::w8h>>(groups, panels);
    }
  }
}

TEST(AccessPattern, IsOneOfTheTable) {
  ASSERT_LT(access_pattern(), std::size(kAccessPatterns));
  const std::string_view chosen =
      with_access_pattern([](auto way) { return std::string_view(decltype(way)::kPattern.name); });
  EXPECT_EQ(chosen, kAccessPatterns[access_pattern()].name);
  std::set<std::string_view> names;
  for (const AccessPattern& pattern : kAccessPatterns) EXPECT_TRUE(names.insert(pattern.name).second);
}

TEST(AccessPattern, TheOneInUseCanBeChanged) {
  const size_t before = access_pattern();
  for (size_t row = 0; row < std::size(kAccessPatterns); ++row) {
    EXPECT_EQ(find_access_pattern(kAccessPatterns[row].name), row);
    use_access_pattern(row);
    EXPECT_EQ(access_pattern(), row);
  }
  use_access_pattern(before);
  EXPECT_FALSE(find_access_pattern("sideways"));
}

}  // namespace
}  // namespace pinion
