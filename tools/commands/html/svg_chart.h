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
  int color = 0;                                       // of the page's palette, 0 to 7
  bool dots = false;                                   // few points that are measured apart
  bool line = true;                                    // from each point to the next
};

enum class Scale { kLinear, kLog2, kLog10 };

// "12", "0.0345", "1.2k", "3.4M": four digits at most.
std::string short_number(double number);

struct Chart {
  std::string title;
  std::string x_name = "step", y_name = {};
  std::vector<ChartSeries> series = {};
  // Vertical lines: where (x), and what happened there.
  std::vector<std::pair<double, std::string>> marks = {};
  bool stacked = false;    // areas on top of each other, of series with the same x
  bool from_zero = false;  // the y axis begins there
  Scale x_scale = Scale::kLinear, y_scale = Scale::kLinear;  // chart_html() draws linear ones only
  std::string (*x_text)(double) = short_number;
  std::string (*y_text)(double) = short_number;
};

// A <figure> with `id` as its id. A series of more points than can be seen is thinned out, so that
// its extremes stay. "" where fewer than two places on the x axis have a finite point.
std::string chart_html(const Chart& chart, const std::string& id);

// An SVG file of charts in two columns, each with its legend, in the page's light colors. Values
// show under the pointer.
std::string charts_svg(const std::vector<Chart>& charts, const std::string& title,
                       const std::string& subtitle);

// Text between tags or in an attribute; control characters are made visible.
std::string html_text(const std::string& text);

}  // namespace tools
