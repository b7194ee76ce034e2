// pinion bench --plot: an SVG of speed against threads under the roof, a panel for each test, and below them a bar of
// stages for each profiled record.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "apps/bench/bench.h"

namespace pinion {
namespace {

constexpr double kWidth = 640, kPanel = 260, kBar = 34, kLegend = 60;
constexpr double kLeft = 70, kRight = 20, kTop = 40, kBottom = 50;
constexpr const char* kColours[] = {"#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b",
                                    "#e377c2", "#7f7f7f", "#bcbd22", "#17becf", "#393b79", "#637939"};
constexpr size_t kColourCount = std::size(kColours);

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.5g", value);
  return text;
}

// anchor: start, middle or end.
void add_text(double x, double y, const char* anchor, const std::string& text, std::string* svg) {
  *svg += "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\" text-anchor=\"" + anchor + "\">" + xml_text(text) +
          "</text>\n";
}

void add_line(double x1, double y1, double x2, double y2, std::string* svg) {
  *svg += "<line x1=\"" + number(x1) + "\" y1=\"" + number(y1) + "\" x2=\"" + number(x2) + "\" y2=\"" + number(y2) +
          "\" stroke=\"#ccc\"/>\n";
}

void add_box(double x, double y, double width, double height, size_t colour, const std::string& title,
             std::string* svg) {
  *svg += "<rect x=\"" + number(x) + "\" y=\"" + number(y) + "\" width=\"" + number(width) + "\" height=\"" +
          number(height) + "\" fill=\"" + kColours[colour % kColourCount] + "\"><title>" + xml_text(title) +
          "</title></rect>\n";
}

// 1, 2 or 5 times a power of ten: about four of them reach `most`.
double step_of(double most) {
  const double power = std::pow(10.0, std::floor(std::log10(most / 4)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (power * factor * 4.5 >= most) return power * factor;
  }
  return power * 10;
}

// Where a panel's figures lie in the picture.
struct Axes {
  double top;
  double most_threads;
  double most_rate;

  double x(double threads) const { return kLeft + (kWidth - kLeft - kRight) * threads / most_threads; }
  double y(double rate) const { return top + kPanel - kBottom - (kPanel - kTop - kBottom) * rate / most_rate; }
};

void add_axes(const Axes& axes, const std::vector<int32_t>& threads, const std::string& title, std::string* svg) {
  add_text(kLeft, axes.top + 20, "start", title + ": tokens a second", svg);
  const double step = step_of(axes.most_rate);
  for (int i = 0; i * step <= axes.most_rate; ++i) {
    add_line(kLeft, axes.y(i * step), kWidth - kRight, axes.y(i * step), svg);
    add_text(kLeft - 6, axes.y(i * step) + 4, "end", number(i * step), svg);
  }
  for (const int32_t count : threads) add_text(axes.x(count), axes.y(0) + 18, "middle", std::to_string(count), svg);
  add_text((kLeft + kWidth - kRight) / 2, axes.y(0) + 36, "middle", "threads", svg);
}

struct Point {
  double threads, rate;
};

void add_curve(const Axes& axes, const std::vector<Point>& points, size_t colour, bool is_roof, std::string* svg) {
  const std::string paint = kColours[colour % kColourCount];
  *svg += std::string("<polyline class=\"") + (is_roof ? "roof" : "speed") + "\" fill=\"none\" stroke=\"" + paint +
          "\" stroke-width=\"2\"" + (is_roof ? " stroke-dasharray=\"6 4\"" : "") + " points=\"";
  for (const Point& p : points) *svg += number(axes.x(p.threads)) + "," + number(axes.y(p.rate)) + " ";
  *svg += "\"/>\n";
  for (const Point& p : points) {
    *svg += "<circle cx=\"" + number(axes.x(p.threads)) + "\" cy=\"" + number(axes.y(p.rate)) + "\" r=\"" +
            (is_roof ? "2" : "4") + "\" fill=\"" + paint + "\"><title>" + number(p.rate) +
            " tokens/s</title></circle>\n";
  }
}

double roof_rate(const BenchRecord& record) { return record.roof / record.bytes_per_token; }

// The roof is drawn where it is what limits: in decoding.
bool has_roof(const BenchRecord& record) { return record.roof_share.has_value(); }

// One test: a curve, and a roof where it has one, for each list of cores.
void add_panel(const std::vector<const BenchRecord*>& records, double top, std::string* svg) {
  Axes axes = {top, 0, 0};
  std::vector<int32_t> threads;
  std::vector<std::string> cores;
  for (const BenchRecord* r : records) {
    axes.most_threads = std::max<double>(axes.most_threads, r->threads());
    axes.most_rate = std::max({axes.most_rate, r->rates.median * 1.1, has_roof(*r) ? roof_rate(*r) * 1.1 : 0});
    if (std::ranges::find(threads, r->threads()) == threads.end()) threads.push_back(r->threads());
    if (std::ranges::find(cores, r->cores) == cores.end()) cores.push_back(r->cores);
  }
  axes.most_threads *= 1.05;
  add_axes(axes, threads, test_name(records[0]->test), svg);
  for (size_t i = 0; i < cores.size(); ++i) {
    std::vector<Point> speed, roof;
    for (const BenchRecord* r : records) {
      if (r->cores != cores[i]) continue;
      speed.push_back({static_cast<double>(r->threads()), r->rates.median});
      if (has_roof(*r)) roof.push_back({static_cast<double>(r->threads()), roof_rate(*r)});
    }
    std::ranges::sort(speed, {}, &Point::threads);
    std::ranges::sort(roof, {}, &Point::threads);
    add_curve(axes, speed, i, false, svg);
    const std::string suffix = cores[i].empty() ? "" : " on " + cores[i];
    const auto label = [&](const Point& p, const std::string& text) {
      add_text(axes.x(p.threads) - 6, axes.y(p.rate) - 8, "end", text + suffix, svg);
    };
    label(speed.back(), "measured");
    if (roof.empty()) continue;
    add_curve(axes, roof, i, true, svg);
    label(roof.back(), "roof: memory");
  }
}

// Milliseconds a token by stage, `outside` last; each bar is its own whole.
void add_bar(const BenchRecord& record, double top, std::string* svg) {
  const BenchProfile& p = *record.profile;
  const ProfileShares shares = shares_of(p, record.test.prompt_tokens == 0);
  const double ms = p.seconds * 1e3 / static_cast<double>(p.tokens);
  add_text(kLeft, top + 10, "start",
           test_name(record.test) + ", " + std::to_string(record.threads()) + " threads" +
               (record.cores.empty() ? "" : " on " + record.cores) + ": " + number(ms) + " ms a token, waiting " +
               number(std::round(shares.waiting_all * 1000) / 10) + " %",
           svg);
  double x = kLeft;
  for (size_t i = 0; i < kStages; ++i) {
    const double width = shares.stages[i] * (kWidth - kLeft - kRight);
    add_box(x, top + 14, width, 14, i, std::string(kStageTraits[i].name) + ": " + number(shares.stages[i] * ms) + " ms",
            svg);
    x += width;
  }
}

void add_legend(double top, std::string* svg) {
  add_text(kLeft, top + 10, "start", "Time by stage, waiting included; blank: outside the parallel region", svg);
  for (size_t i = 0; i < kStages; ++i) {
    const double x = kLeft + static_cast<double>(i % 6) * 92;
    const double y = top + 18 + static_cast<double>(i / 6) * 18;
    add_box(x, y, 10, 10, i, std::string(kStageTraits[i].name), svg);
    add_text(x + 13, y + 9, "start", std::string(kStageTraits[i].name), svg);
  }
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
  for (const auto& panel : panels) {
    add_panel(panel, top, &body);
    top += kPanel;
  }
  if (records[0].profile) {
    add_legend(top, &body);
    top += kLegend;
    for (const BenchRecord& record : records) {
      add_bar(record, top, &body);
      top += kBar;
    }
    top += 10;
  }
  const std::string size = "width=\"" + number(kWidth) + "\" height=\"" + number(top) + "\"";
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" " + size + " font-family=\"sans-serif\" font-size=\"12\">\n<rect " +
         size + " fill=\"white\"/>\n" + body + "</svg>\n";
}

}  // namespace pinion
