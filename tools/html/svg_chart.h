// Draws line charts as SVG: in a page, readable without a script, by keyboard and by screen readers
// (as sliders; charts.js shows their values), or as a file.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace tools {

struct ChartSeries {
  std::string name;
  std::vector<std::pair<double, double>> points = {};  // (x, y), by x; y may be NaN: a gap
  int color = 0;                                       // index in the page's palette, 0 to 7
  bool dots = false;                                   // true for few separately measured points
  bool line = true;                                    // true: connects each point to the next
};

enum class Scale { kLinear, kLog2, kLog10 };

// Returns e.g. "12", "0.0345", "1.2k", "3.4M": at most four digits.
std::string short_number(double number);

struct Chart {
  std::string title;
  std::string x_name = "step", y_name = {};
  std::vector<ChartSeries> series = {};
  // Vertical lines: their x, and the event there.
  std::vector<std::pair<double, std::string>> marks = {};
  bool stacked = false;    // areas on top of each other, for series with the same x
  bool from_zero = false;  // true: the y axis begins at 0
  Scale x_scale = Scale::kLinear, y_scale = Scale::kLinear;  // chart_html() draws only linear ones
  std::string (*x_text)(double) = short_number;
  std::string (*y_text)(double) = short_number;
};

// Returns a <figure> with this `id`. A series of more points than are visible is thinned, so that
// its extremes stay. "" if fewer than two places on the x axis have a finite point.
std::string chart_html(const Chart& chart, const std::string& id);

// Returns an SVG file of charts in two columns, each with its legend, in the page's light colors.
// Values are shown under the pointer.
std::string charts_svg(const std::vector<Chart>& charts, const std::string& title,
                       const std::string& subtitle);

// Returns text that is safe between tags or in an attribute; control characters are made visible.
std::string html_text(const std::string& text);

}  // namespace tools
