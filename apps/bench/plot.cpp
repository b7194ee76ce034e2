// pinion bench --plot: an SVG with speed and roof against threads for each test, and the stages of profiled records.
#include <cmath>

#include "apps/bench/bench.h"

namespace pinion {
namespace {

constexpr double kWidth = 640, kPanel = 210, kLegendRow = 20, kBar = 40;
constexpr double kLeft = 70, kRight = 20, kTitle = 30, kBottom = 50, kEnd = 10;
// Upper bound of a character's average width in a sans-serif font of 12 pixels.
constexpr double kCharacter = 7.8;
constexpr const char* kCurveColours[] = {"#1f77b4", "#ff7f0e", "#2ca02c", "#d62728",
                                         "#9467bd", "#8c564b", "#e377c2", "#17becf"};
// By stage; neighbours have contrasting colours.
constexpr const char* kStageColours[] = {"#8c8c8c", "#f7b6d2", "#c5b0d5", "#1f77b4", "#dbdb8d", "#ff9896", "#aec7e8",
                                         "#17becf", "#9edae5", "#2ca02c", "#98df8a", "#e377c2", "#8c564b", "#ff7f0e",
                                         "#ffbb78", "#d62728", "#c49c94", "#7f9f3f", "#9467bd", "#bcbd22"};
static_assert(std::size(kStageColours) == kStages);
// The attributes of the elements have the colours for light pages.
constexpr const char* kDarkStyle =
    "<style>@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .ground { fill: #0d1117 } "
    ".grid { stroke: #30363d } }</style>\n";

// " on 0-3", shortened to fit.
std::string cores_suffix(const std::string& cores) {
  constexpr size_t kMaxLength = 20;
  if (cores.empty()) return "";
  return " on " + (cores.size() > kMaxLength ? cores.substr(0, kMaxLength - 3) + "..." : cores);
}

// anchor: start, middle or end.
void add_text(double x, double y, const char* anchor, const std::string& text, std::string* svg) {
  *svg += formatted("<text x=\"%.7g\" y=\"%.7g\" text-anchor=\"%s\">", x, y, anchor) + xml_text(text) + "</text>\n";
}

void add_box(double x, double y, double width, double height, const std::string& colour, const std::string& title,
             std::string* svg) {
  *svg += formatted("<rect x=\"%.7g\" y=\"%.7g\" width=\"%.7g\" height=\"%.7g\" fill=\"", x, y, width, height) +
          colour + "\"><title>" + xml_text(title) + "</title></rect>\n";
}

std::string stroke(const std::string& colour, bool is_roof) {
  return "stroke=\"" + colour + "\" stroke-width=\"2\"" + (is_roof ? " stroke-dasharray=\"6 4\"" : "");
}

enum class Key { box, line, dashes };

struct LegendEntry {
  std::string text, colour;
  Key key;
};

// Fills rows with as many entries as fit. Returns the y below them.
double add_legend(const std::vector<LegendEntry>& entries, double top, std::string* svg) {
  constexpr double kKey = 18, kGap = 14;
  double x = kLeft;
  for (const LegendEntry& entry : entries) {
    const double width = kKey + kCharacter * static_cast<double>(entry.text.size());
    if (x > kLeft && x + width > kWidth - kRight) {
      x = kLeft;
      top += kLegendRow;
    }
    if (entry.key == Key::box) {
      add_box(x, top + 4, 12, 12, entry.colour, entry.text, svg);
    } else {
      *svg += formatted("<path d=\"M%.7g %.7gh14\" ", x, top + 10) + stroke(entry.colour, entry.key == Key::dashes) +
              "/>\n";
    }
    add_text(x + kKey, top + 14, "start", entry.text, svg);
    x += width + kGap;
  }
  return top + kLegendRow;
}

// Grid step for values up to `max`: 1, 2 or 5 times a power of ten, which gives about four lines.
double grid_step(double max) {
  const double power = std::pow(10.0, std::floor(std::log10(max / 4)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (power * factor * 4.5 >= max) return power * factor;
  }
  return power * 10;
}

// Maps a panel's values to coordinates of the picture.
struct Axes {
  double top;
  double max_threads;
  double max_rate;

  double x(double threads) const { return kLeft + (kWidth - kLeft - kRight) * threads / max_threads; }
  double y(double rate) const { return top + kPanel - kBottom - (kPanel - kBottom - kEnd) * rate / max_rate; }
};

void add_axes(const Axes& axes, const std::vector<int32_t>& threads, std::string* svg) {
  const double step = grid_step(axes.max_rate);
  for (int i = 0; i * step <= axes.max_rate; ++i) {
    const double y = axes.y(i * step);
    *svg += formatted("<line class=\"grid\" x1=\"%.7g\" y1=\"%.7g\" x2=\"%.7g\" y2=\"%.7g\" stroke=\"#d0d7de\"/>\n",
                      kLeft, y, kWidth - kRight, y);
    add_text(kLeft - 6, y + 4, "end", formatted("%.7g", i * step), svg);
  }
  double free = 0;  // x after the last label
  for (const int32_t count : threads) {
    const std::string text = std::to_string(count);
    const double half = kCharacter * static_cast<double>(text.size()) / 2;
    if (axes.x(count) - half < free) continue;
    add_text(axes.x(count), axes.y(0) + 18, "middle", text, svg);
    free = axes.x(count) + half;
  }
  add_text((kLeft + kWidth - kRight) / 2, axes.y(0) + 36, "middle", "threads", svg);
}

struct Point {
  double threads, rate;
};

void add_curve(const Axes& axes, const std::vector<Point>& points, const std::string& colour, bool is_roof,
               std::string* svg) {
  *svg += std::string("<polyline class=\"") + (is_roof ? "roof" : "speed") + "\" fill=\"none\" " +
          stroke(colour, is_roof) + " points=\"";
  for (const Point& p : points) *svg += formatted("%.7g,%.7g ", axes.x(p.threads), axes.y(p.rate));
  *svg += "\"/>\n";
  for (const Point& p : points) {
    *svg += formatted("<circle cx=\"%.7g\" cy=\"%.7g\" r=\"%d\" fill=\"%s\"><title>%.4g tokens/s</title></circle>\n",
                      axes.x(p.threads), axes.y(p.rate), is_roof ? 2 : 4, colour.c_str(), p.rate);
  }
}

double roof_rate(const BenchRecord& record) { return record.roof / record.bytes_per_token; }

// The roof is drawn for decode only, which it limits.
bool has_roof(const BenchRecord& record) { return record.roof_share.has_value(); }

// The results of one list of cores.
struct Curve {
  std::string cores;
  std::vector<Point> speed, roof;
};

std::vector<Curve> curves_of(const std::vector<const BenchRecord*>& records) {
  std::vector<Curve> curves;
  for (const BenchRecord* r : records) {
    auto curve = std::ranges::find(curves, r->cores, &Curve::cores);
    if (curve == curves.end()) curve = curves.insert(curves.end(), {r->cores, {}, {}});
    curve->speed.push_back({static_cast<double>(r->threads()), r->rates.median});
    if (has_roof(*r)) curve->roof.push_back({static_cast<double>(r->threads()), roof_rate(*r)});
  }
  for (Curve& curve : curves) {
    std::ranges::sort(curve.speed, {}, &Point::threads);
    std::ranges::sort(curve.roof, {}, &Point::threads);
  }
  return curves;
}

// One test: a curve, and a roof in decode, for each list of cores. Returns the y below it.
double add_panel(const std::vector<const BenchRecord*>& records, double top, std::string* svg) {
  const std::vector<Curve> curves = curves_of(records);
  add_text(kLeft, top + 20, "start", test_name(records[0]->test) + ": tokens a second", svg);
  std::vector<LegendEntry> legend;
  for (size_t i = 0; i < curves.size(); ++i) {
    const std::string colour = kCurveColours[i % std::size(kCurveColours)];
    const std::string suffix = cores_suffix(curves[i].cores);
    legend.push_back({"measured" + suffix, colour, Key::line});
    if (!curves[i].roof.empty()) legend.push_back({"roof: memory" + suffix, colour, Key::dashes});
  }
  Axes axes = {add_legend(legend, top + kTitle, svg), 0, 0};
  std::vector<int32_t> threads;
  for (const BenchRecord* r : records) {
    axes.max_threads = std::max<double>(axes.max_threads, r->threads());
    axes.max_rate = std::max({axes.max_rate, r->rates.median * 1.1, has_roof(*r) ? roof_rate(*r) * 1.1 : 0});
    threads.push_back(r->threads());
  }
  std::ranges::sort(threads);
  axes.max_threads *= 1.05;
  add_axes(axes, threads, svg);
  for (size_t i = 0; i < curves.size(); ++i) {
    const std::string colour = kCurveColours[i % std::size(kCurveColours)];
    add_curve(axes, curves[i].speed, colour, false, svg);
    if (!curves[i].roof.empty()) add_curve(axes, curves[i].roof, colour, true, svg);
  }
  return axes.top + kPanel;
}

ProfileShares shares_of(const BenchRecord& record) {
  return shares_of(*record.profile, record.test.prompt_tokens == 0);
}

// Milliseconds per token by stage, `outside` last. Every bar has full width.
void add_bar(const BenchRecord& record, double top, std::string* svg) {
  const ProfileShares shares = shares_of(record);
  const double ms = record.profile->seconds * 1e3 / static_cast<double>(record.profile->tokens);
  add_text(kLeft, top + 12, "start",
           test_name(record.test) + ", " + std::to_string(record.threads()) +
               (record.threads() == 1 ? " thread" : " threads") + cores_suffix(record.cores) +
               formatted(": %.4g ms a token, waiting %.4g %%", ms, std::round(shares.waiting_all * 1000) / 10),
           svg);
  double x = kLeft;
  for (size_t i = 0; i < kStages; ++i) {
    const double width = shares.stages[i] * (kWidth - kLeft - kRight);
    if (!(width > 0)) continue;
    add_box(x, top + 17, width, 14, kStageColours[i],
            std::string(kStageTraits[i].name) + formatted(": %.4g ms", shares.stages[i] * ms), svg);
    x += width;
  }
}

// Legend of the stages that take time in any record.
std::vector<LegendEntry> stages_of(const std::vector<BenchRecord>& records) {
  std::vector<LegendEntry> entries;
  for (size_t i = 0; i < kStages; ++i) {
    const auto takes_time = [i](const BenchRecord& record) { return shares_of(record).stages[i] > 0; };
    if (std::ranges::none_of(records, takes_time)) continue;
    entries.push_back({std::string(kStageTraits[i].name), kStageColours[i], Key::box});
  }
  return entries;
}

// The legend of the colours and a bar for each record. Returns the y below them.
double add_bars(const std::vector<BenchRecord>& records, double top, std::string* svg) {
  add_text(kLeft, top + 20, "start", "Time by stage, waiting included; blank: outside the parallel region", svg);
  top = add_legend(stages_of(records), top + kTitle, svg) + kEnd;
  for (const BenchRecord& record : records) {
    add_bar(record, top, svg);
    top += kBar;
  }
  return top;
}

}  // namespace

std::string plot_svg(const std::vector<BenchRecord>& records) {
  std::vector<std::vector<const BenchRecord*>> panels;
  for (const BenchRecord& record : records) {
    const std::string name = test_name(record.test);
    const auto same = [&](const auto& panel) { return test_name(panel[0]->test) == name; };
    auto panel = std::ranges::find_if(panels, same);
    if (panel == panels.end()) panel = panels.insert(panels.end(), std::vector<const BenchRecord*>());
    panel->push_back(&record);
  }
  std::string body;
  double top = 0;
  for (const auto& panel : panels) top = add_panel(panel, top, &body);
  if (records[0].profile) top = add_bars(records, top, &body);
  top += kEnd;
  return formatted(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.7g\" height=\"%.7g\" viewBox=\"0 0 %.7g %.7g\" "
             "font-family=\"sans-serif\" font-size=\"12\" fill=\"#1f2328\">\n",
             kWidth, top, kWidth, top) +
         kDarkStyle +
         formatted("<rect class=\"ground\" width=\"%.7g\" height=\"%.7g\" fill=\"white\"/>\n", kWidth, top) + body +
         "</svg>\n";
}

}  // namespace pinion
