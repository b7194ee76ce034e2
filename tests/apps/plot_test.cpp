// pinion bench --plot: the contents of the picture, and that no texts overlap.
#include <regex>

#include "tests/apps/program.h"

namespace pinion {
namespace {

int64_t occurrences(const std::string& text, const std::string& part) {
  int64_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

struct Extent {
  double left, top, right, bottom;
  std::string what;

  bool overlaps(const Extent& other) const {
    return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
  }
};

// Areas of texts of 12 pixels and of boxes. A character of DejaVu Sans, a wide font, takes 7.3 pixels on average.
std::vector<Extent> extents_of(const std::string& svg) {
  static const std::regex kText("<text x=\"([^\"]*)\" y=\"([^\"]*)\" text-anchor=\"([^\"]*)\">([^<]*)</text>");
  static const std::regex kBox(
      "<rect x=\"([^\"]*)\" y=\"([^\"]*)\" width=\"([^\"]*)\" height=\"([^\"]*)\"[^>]*><title>([^<]*)");
  std::vector<Extent> extents;
  for (std::sregex_iterator match(svg.begin(), svg.end(), kText), end; match != end; ++match) {
    const double x = std::stod((*match)[1]), y = std::stod((*match)[2]);
    const double width = 7.3 * static_cast<double>((*match)[4].length());
    const double left = (*match)[3] == "start" ? x : (*match)[3] == "end" ? x - width : x - width / 2;
    extents.push_back({left, y - 10, left + width, y + 3, (*match)[4]});
  }
  for (std::sregex_iterator match(svg.begin(), svg.end(), kBox), end; match != end; ++match) {
    const double x = std::stod((*match)[1]), y = std::stod((*match)[2]);
    extents.push_back({x + 0.01, y, x + std::stod((*match)[3]) - 0.01, y + std::stod((*match)[4]), (*match)[5]});
  }
  return extents;
}

void expect_nothing_overlaps(const std::string& svg) {
  const std::vector<Extent> extents = extents_of(svg);
  EXPECT_GT(extents.size(), 20u);
  std::smatch size;
  ASSERT_TRUE(std::regex_search(svg, size, std::regex("viewBox=\"0 0 ([0-9.]*) ([0-9.]*)\"")));
  for (size_t i = 0; i < extents.size(); ++i) {
    const Extent& one = extents[i];
    EXPECT_TRUE(one.left >= 0 && one.top >= 0 && one.right <= std::stod(size[1]) && one.bottom <= std::stod(size[2]))
        << one.what << " lies outside";
    for (size_t j = 0; j < i; ++j) EXPECT_FALSE(one.overlaps(extents[j])) << one.what << " over " << extents[j].what;
  }
}

// The colours of the legend, one per stage.
void expect_distinct_colours(const std::string& svg) {
  static const std::regex kBox("height=\"12\" fill=\"([^\"]*)\"><title>");
  std::vector<std::string> colours;
  for (std::sregex_iterator match(svg.begin(), svg.end(), kBox), end; match != end; ++match)
    colours.push_back((*match)[1]);
  EXPECT_GE(colours.size(), 12u);
  std::ranges::sort(colours);
  EXPECT_EQ(std::ranges::adjacent_find(colours), colours.end());
}

TEST(Plot, TextsDoNotOverlap) {
  const Folder folder;
  const auto plot = [&](const std::vector<std::string>& options) {
    std::vector<std::string> arguments = {"bench", "-r", "1", "--profile", "--plot", folder / "speed.svg"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const Outcome outcome = run_pinion(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return read_file(folder / "speed.svg");
  };
  const std::string cpu = std::to_string(run_json({"cpu", "--json"})["team"][0].get<int>());
  const std::string mixture =
      plot({"--model", PINION_TEST_DATA "/families/qwen3_moe_mixed", "-p", "8", "-n", "2", "-t", "1,2,3"});
  expect_nothing_overlaps(mixture);
  expect_distinct_colours(mixture);
  EXPECT_NE(mixture.find(">router</text>"), std::string::npos);
  expect_nothing_overlaps(plot(
      {"--model", kStories, "-p", "8", "-n", "2", "-pg", "4,4", "-d", "0,16", "-t", "1", "--cores", cpu + ";all"}));
}

TEST(Plot, CurvePerTestAndRoofOfDecode) {
  const Folder folder;
  const Outcome outcome = run_pinion({"bench", "--model", kStories, "-p", "16", "-n", "8", "-r", "2", "-t", "1,2",
                                      "--profile", "--plot", folder / "speed.svg"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const std::string svg = read_file(folder / "speed.svg");
  EXPECT_TRUE(svg.starts_with("<svg xmlns"));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  EXPECT_EQ(occurrences(svg, "<polyline class=\"speed\""), 2);
  EXPECT_EQ(occurrences(svg, "<polyline class=\"roof\""), 1);
  EXPECT_EQ(occurrences(svg, "<circle"), 6);
  EXPECT_EQ(occurrences(svg, "<text"), occurrences(svg, "</text>"));
  EXPECT_EQ(occurrences(svg, "<rect"), 1 + 12 * (1 + 4));  // background, legend and four bars without a router
  EXPECT_NE(svg.find(", 1 thread: "), std::string::npos);
  EXPECT_NE(svg.find(", 2 threads: "), std::string::npos);
  EXPECT_NE(svg.find("prefers-color-scheme: dark"), std::string::npos);
  expect_nothing_overlaps(svg);
  for (const char* bad : {"nan", "inf", "\"-"}) EXPECT_EQ(svg.find(bad), std::string::npos) << bad;
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path), {}), 1);
}

}  // namespace
}  // namespace pinion
