#include "tools/html/svg_chart.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "io/base/formats/json_writer.h"
#include "io/base/text/escape_text.h"
#include "io/base/text/text_parts.h"
#include "tools/html/page_files.h"

namespace tools {
namespace {

using Point = std::pair<double, double>;

// The chart is narrow, so that its letters stay readable if a phone scales it down.
constexpr double kWidth = 480, kHeight = 220, kLeft = 72, kRight = 16, kTop = 14, kBottom = 44;
constexpr std::size_t kMaxPoints = 500;  // per series; the width has hardly more pixels
constexpr std::size_t kMaxRows = 24;     // of the table for users who cannot see the chart

std::string coordinate(double value) { return base::number_text("%.1f", value); }

// Keeps the minimum and the maximum y of each interval.
std::vector<Point> thinned(const std::vector<Point>& points) {
  if (points.size() <= kMaxPoints) return points;
  std::vector<Point> kept;
  const std::size_t stretches = kMaxPoints / 2;
  for (std::size_t s = 0; s < stretches; ++s) {
    const auto first = points.begin() + static_cast<std::ptrdiff_t>(points.size() * s / stretches),
               last = points.begin() +
                      static_cast<std::ptrdiff_t>(points.size() * (s + 1) / stretches);
    const auto by_y = [](const Point& a, const Point& b) { return a.second < b.second; };
    auto [low, high] = std::minmax_element(first, last, by_y);
    if (high < low) std::swap(low, high);
    kept.push_back(*low);
    if (low != high) kept.push_back(*high);
  }
  if (kept.back() != points.back()) kept.push_back(points.back());
  return kept;
}

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -low;

  void include(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool is_empty() const { return low > high; }
};

double scaled(Scale scale, double value) {
  if (scale == Scale::kLinear) return value;
  if (!(value > 0)) return std::numeric_limits<double>::quiet_NaN();
  return scale == Scale::kLog2 ? std::log2(value) : std::log10(value);
}

double unscaled(Scale scale, double value) {
  if (scale == Scale::kLinear) return value;
  return scale == Scale::kLog2 ? std::exp2(value) : std::pow(10, value);
}

// Returns about `count` ticks: 1, 2 or 5 times a power of ten, or whole powers on a logarithmic
// scale.
std::vector<double> ticks(const Range& range, Scale scale, int count) {
  std::vector<double> all;
  if (scale != Scale::kLinear) {
    const double step = std::max(1.0, std::ceil((range.high - range.low) / (count + 2)));
    for (double k = std::ceil(range.low - 1e-9); k <= range.high + 1e-9; k += step)
      all.push_back(k);
    return all;
  }
  const double rough = (range.high - range.low) / count;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  const double digit = rough / power;
  const double step = power * (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 5 ? 5 : 10);
  for (double k = std::ceil(range.low / step - 1e-9); k * step <= range.high + 1e-9 * step; ++k)
    all.push_back(k * step + 0.0);  // avoids -0
  return all;
}

class Drawing {
 public:
  explicit Drawing(const Chart& chart) : chart_(chart) {
    for (const ChartSeries& s : chart.series) {
      series_.push_back(s);
      series_.back().points = thinned(s.points);
    }
    if (chart.stacked) stack();
    for (ChartSeries& s : series_)
      for (auto& [x, y] : s.points) {
        x = scaled(chart.x_scale, x);
        y = scaled(chart.y_scale, y);
      }
    for (const ChartSeries& s : series_)
      for (const auto& [x, y] : s.points)
        if (std::isfinite(x) && std::isfinite(y)) {
          x_.include(x);
          y_.include(y);
        }
    if (x_.is_empty()) return;
    has_width_ = x_.low < x_.high;
    widen(x_, 0.5);
    if (chart.y_scale == Scale::kLog10) {  // whole decades
      y_.low = std::floor(y_.low);
      y_.high = std::max(y_.low + 1, std::ceil(y_.high));
    }
    if (chart.from_zero || chart.stacked) y_.include(0);
    widen(y_, std::max(std::abs(y_.high), 1e-12) * 0.1);
  }

  bool has_points() const { return !y_.is_empty(); }
  bool has_width() const { return has_width_; }  // true if there are several places on the x axis

  std::string svg(const std::string& id) const {
    std::string out =
        "<svg class=\"chart\" viewBox=\"0 0 " + base::number_text("%.0f ", kWidth) +
        base::number_text("%.0f", kHeight) +
        // A slider along the x axis: screen readers pass its keys on, and read its value.
        "\" role=\"slider\" tabindex=\"0\" aria-valuemin=\"" + base::number_text("%.15g", x_.low) +
        "\" aria-valuemax=\"" + base::number_text("%.15g", x_.high) + "\" aria-labelledby=\"" + id +
        "-title\" aria-describedby=\"" + id + "-summary\">";
    out += "<desc id=\"" + id + "-summary\">" + html_text(summary()) + "</desc>";
    return out + contents() + "<line class=\"cursor\" y1=\"" + coordinate(kTop) + "\" y2=\"" +
           coordinate(kHeight - kBottom) + "\"/></svg>";
  }

  // Draws axes, marks and curves.
  std::string contents() const {
    std::string out = axes();
    for (const auto& [x, what] : chart_.marks)
      if (x >= x_.low && x <= x_.high)
        out += "<line class=\"mark\" x1=\"" + at_x(x) + "\" x2=\"" + at_x(x) + "\" y1=\"" +
               coordinate(kTop) + "\" y2=\"" + coordinate(kHeight - kBottom) + "\"><title>" +
               html_text(what) + "</title></line>";
    for (std::size_t i = series_.size(); i-- > 0;)  // in a stack, the lower ones are drawn last
      out += shape(i);
    return out;
  }

  std::string legend() const {
    std::string out = "<ul class=\"legend\">";
    for (const ChartSeries& s : chart_.series)
      out += "<li><span class=\"key" + std::string(s.dots ? " dot" : "") + " c" +
             std::to_string(s.color % 8) + "\"></span>" + html_text(s.name) + "</li>";
    return out + "</ul>";
  }

  // Returns the data that the script shows, with unrounded numbers.
  std::string data() const {
    base::JsonWriter json;
    json.begin_object();
    json.member("x", std::vector<double>{x_.low, x_.high, kLeft, kWidth - kRight});
    json.member("name", chart_.x_name).key("series").begin_array();
    for (std::size_t i = 0; i < series_.size(); ++i) {
      json.begin_object().member("name", chart_.series[i].name).key("points").begin_array();
      for (const auto& [x, y] : thinned(chart_.series[i].points))
        json.begin_array().value(x).value(y).end_array();
      json.end_array().end_object();
    }
    std::string text = json.end_array().end_object().text();
    // No string may contain the end of the element.
    for (std::size_t at = 0; (at = text.find('<', at)) != std::string::npos;)
      text.replace(at, 1, "\\u003c");
    return text;
  }

  std::string table() const {
    std::string out =
        "<details><summary>Values</summary><div class=\"scroll\"><table><thead><tr><th "
        "scope=\"col\">" +
        html_text(chart_.x_name) + "</th>";
    std::vector<double> xs;
    for (const ChartSeries& s : chart_.series) {
      out += "<th scope=\"col\">" + html_text(s.name) + "</th>";
      for (const Point& p : s.points) xs.push_back(p.first);
    }
    std::ranges::sort(xs);
    xs.erase(std::unique(xs.begin(), xs.end()), xs.end());
    out += "</tr></thead><tbody>";
    const std::size_t rows = std::min(xs.size(), kMaxRows);
    for (std::size_t r = 0; r < rows; ++r) {
      const double x = xs[rows == 1 ? 0 : r * (xs.size() - 1) / (rows - 1)];
      out += "<tr><th scope=\"row\">" + base::number_text("%.15g", x) + "</th>";
      for (const ChartSeries& s : chart_.series) {
        const auto found = std::ranges::lower_bound(s.points, x, {}, &Point::first);
        const bool is_there = found != s.points.end() && found->first == x;
        out += "<td>" + (is_there ? short_number(found->second) : "") + "</td>";
      }
      out += "</tr>";
    }
    return out + "</tbody></table></div></details>";
  }

 private:
  static void widen(Range& range, double by) {
    if (range.high > range.low) return;
    range.low -= by;
    range.high += by;
  }

  // Replaces each y by its sum with those below. All series have the points of the first.
  void stack() {
    for (std::size_t i = 1; i < series_.size(); ++i) {
      series_[i].points = chart_.series[i].points;
      if (i == 1) series_[0].points = chart_.series[0].points;
      for (std::size_t p = 0; p < series_[i].points.size(); ++p)
        series_[i].points[p].second += series_[i - 1].points[p].second;
    }
    for (ChartSeries& s : series_) s.points = every_nth(s.points);
  }
  static std::vector<Point> every_nth(const std::vector<Point>& points) {
    const std::size_t n = points.size() / kMaxPoints + 1;
    std::vector<Point> kept;
    for (std::size_t i = 0; i < points.size(); i += n) kept.push_back(points[i]);
    return kept;
  }

  std::string at_x(double x) const {
    return coordinate(kLeft + (x - x_.low) / (x_.high - x_.low) * (kWidth - kLeft - kRight));
  }
  std::string at_y(double y) const {
    return coordinate(kHeight - kBottom -
                      (y - y_.low) / (y_.high - y_.low) * (kHeight - kTop - kBottom));
  }

  std::string axes() const {
    std::string out;
    for (const double y : ticks(y_, chart_.y_scale, 5))
      out += "<line class=\"grid\" x1=\"" + coordinate(kLeft) + "\" x2=\"" +
             coordinate(kWidth - kRight) + "\" y1=\"" + at_y(y) + "\" y2=\"" + at_y(y) +
             "\"/><text class=\"tick\" text-anchor=\"end\" x=\"" + coordinate(kLeft - 6) +
             "\" y=\"" + at_y(y) + "\" dy=\"0.32em\">" +
             html_text(chart_.y_text(unscaled(chart_.y_scale, y))) + "</text>";
    for (const double x : ticks(x_, chart_.x_scale, 6))
      out += "<text class=\"tick\" text-anchor=\"middle\" x=\"" + at_x(x) + "\" y=\"" +
             coordinate(kHeight - kBottom + 17) + "\">" +
             html_text(chart_.x_text(unscaled(chart_.x_scale, x))) + "</text>";
    out += "<line class=\"axis\" x1=\"" + coordinate(kLeft) + "\" x2=\"" +
           coordinate(kWidth - kRight) + "\" y1=\"" + coordinate(kHeight - kBottom) + "\" y2=\"" +
           coordinate(kHeight - kBottom) + "\"/>";
    out += "<text class=\"name\" text-anchor=\"middle\" x=\"" +
           coordinate((kLeft + kWidth - kRight) / 2) + "\" y=\"" + coordinate(kHeight - 6) + "\">" +
           html_text(chart_.x_name) + "</text>";
    if (!chart_.y_name.empty())
      out += "<text class=\"name\" text-anchor=\"middle\" transform=\"translate(14," +
             coordinate((kTop + kHeight - kBottom) / 2) + ") rotate(-90)\">" +
             html_text(chart_.y_name) + "</text>";
    return out;
  }

  std::string shape(std::size_t i) const {
    const ChartSeries& s = series_[i];
    const std::string color = std::to_string(s.color % 8);
    std::string path, dots;
    bool pen_is_down = false;
    for (const auto& [x, y] : s.points) {
      if (!std::isfinite(x) || !std::isfinite(y)) {
        pen_is_down = false;
        continue;
      }
      path += (pen_is_down ? "L" : "M") + at_x(x) + " " + at_y(y);
      pen_is_down = true;
      if (s.dots || s.points.size() == 1)
        dots += "<circle class=\"f" + color + "\" r=\"3\" cx=\"" + at_x(x) + "\" cy=\"" + at_y(y) +
                "\"><title>" +
                html_text(s.name + ", " + chart_.x_text(unscaled(chart_.x_scale, x)) + ": " +
                          chart_.y_text(unscaled(chart_.y_scale, y))) +
                "</title></circle>";
    }
    if (path.empty()) return "";
    if (chart_.stacked)
      return "<path class=\"area f" + color + "\" d=\"" + path + "L" + at_x(s.points.back().first) +
             " " + at_y(0) + "L" + at_x(s.points.front().first) + " " + at_y(0) + "Z\"/>";
    if (!s.line) return dots;
    return "<path class=\"line c" + color + (s.dots ? " dashed" : "") + "\" d=\"" + path + "\"/>" +
           dots;
  }

  std::string summary() const {
    std::vector<std::string> parts;
    for (const ChartSeries& s : chart_.series) {
      Range y;
      for (const Point& p : s.points) y.include(p.second);
      if (!y.is_empty())
        parts.push_back(s.name + ": from " + short_number(s.points.front().second) + " to " +
                        short_number(s.points.back().second) + ", least " + short_number(y.low) +
                        ", greatest " + short_number(y.high));
    }
    return base::join_text(parts, "; ");
  }

  const Chart& chart_;
  std::vector<ChartSeries> series_;  // as drawn
  Range x_, y_;
  bool has_width_ = false;
};

// Returns the page's style with the values of its variables, which many SVG viewers do not support.
std::string plain_style() {
  std::string style = kPageStyle;
  style.erase(0, style.find(":root{"));
  const std::string root = style.substr(6, style.find('}') - 6);
  std::map<std::string, std::string, std::less<>> values;
  for (std::size_t at = root.find("--"); at != std::string::npos; at = root.find("--", at)) {
    const std::size_t colon = root.find(':', at), end = root.find_first_of(";\n", colon);
    values[root.substr(at, colon - at)] = root.substr(colon + 1, end - colon - 1);
    at = colon;
  }
  for (std::size_t at = 0; (at = style.find("var(--", at)) != std::string::npos;) {
    const std::size_t end = style.find(')', at);
    const auto known = values.find(style.substr(at + 4, end - at - 4));
    if (known == values.end())
      ++at;
    else
      style.replace(at, end + 1 - at, known->second);
  }
  return style.substr(style.find(".grid{"), style.find(".legend{") - style.find(".grid{")) +
         style.substr(style.find(".c0{"), style.find(".values{") - style.find(".c0{"));
}

std::string svg_text(double x, double y, const std::string& size, const std::string& text) {
  return "<text x=\"" + coordinate(x) + "\" y=\"" + coordinate(y) + "\" font-size=\"" + size +
         "\">" + html_text(text) + "</text>\n";
}

}  // namespace

std::string chart_html(const Chart& chart, const std::string& id) {
  const Drawing drawing(chart);
  if (!drawing.has_points() || !drawing.has_width()) return "";
  return "<figure id=\"" + id + "\"><figcaption id=\"" + id + "-title\">" + html_text(chart.title) +
         "</figcaption>" + (chart.series.size() > 1 ? drawing.legend() : "") + drawing.svg(id) +
         "<p class=\"values\"></p>" + drawing.table() + "<script type=\"application/json\">" +
         drawing.data() + "</script></figure>\n";
}

std::string charts_svg(const std::vector<Chart>& charts, const std::string& title,
                       const std::string& subtitle) {
  constexpr double kHeader = 50, kTitle = 22, kLegendLine = 17, kGap = 20;
  std::size_t legend = 0;
  for (const Chart& chart : charts) legend = std::max(legend, chart.series.size());
  const std::size_t columns = charts.size() > 1 ? 2 : 1;
  const double cell_height = kTitle + kHeight + kLegendLine * static_cast<double>(legend) + kGap;
  const std::size_t lines = (charts.size() + columns - 1) / columns;
  const std::string width = coordinate(kWidth * static_cast<double>(columns)),
                    height = coordinate(kHeader + cell_height * static_cast<double>(lines));
  std::string out = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + width + "\" height=\"" +
                    height + "\" viewBox=\"0 0 " + width + " " + height +
                    "\" font-family=\"sans-serif\">\n<style>" + plain_style() +
                    "</style>\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n" +
                    svg_text(12, 22, "15", title) + svg_text(12, 40, "11", subtitle);
  for (std::size_t i = 0; i < charts.size(); ++i) {
    out += "<g transform=\"translate(" + coordinate(kWidth * static_cast<double>(i % columns)) +
           "," + coordinate(kHeader + cell_height * static_cast<double>(i / columns)) + ")\">\n" +
           svg_text(kLeft, kTitle - 6, "14", charts[i].title) + "<g transform=\"translate(0," +
           coordinate(kTitle) + ")\">" + Drawing(charts[i]).contents() + "</g>\n";
    double at = kTitle + kHeight + kLegendLine;
    for (const ChartSeries& s : charts[i].series) {
      out += "<circle class=\"f" + std::to_string(s.color % 8) + "\" r=\"4\" cx=\"" +
             coordinate(kLeft + 6) + "\" cy=\"" + coordinate(at - 4) + "\"/>" +
             svg_text(kLeft + 16, at, "12", s.name);
      at += kLegendLine;
    }
    out += "</g>\n";
  }
  return out + "</svg>\n";
}

std::string html_text(const std::string& text) {
  std::string out;
  for (const char c : base::escape_text(text)) switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  return out;
}

std::string short_number(double number) {
  if (!std::isfinite(number)) return std::isnan(number) ? "not a number" : "infinite";
  const double size = std::abs(number);
  if (size >= 1e12 || (size > 0 && size < 1e-4)) return base::number_text("%.2e", number);
  if (size >= 1e9) return base::number_text("%.4g", number / 1e9) + "G";
  if (size >= 1e6) return base::number_text("%.4g", number / 1e6) + "M";
  if (size >= 1e4) return base::number_text("%.4g", number / 1e3) + "k";
  return base::number_text("%.4g", number);
}

}  // namespace tools
