// The plot of `engine bench comm`: SVG 1.1 by hand, no scripts, no fonts beyond the viewer's own.
#include <algorithm>
#include <cmath>
#include <map>

#include "io/base/text/text_parts.h"
#include "tools/bench/comm/bench_comm.h"
#include "tools/html/svg_chart.h"

namespace tools {
namespace {

constexpr double kPanelWidth = 560, kPanelHeight = 400, kLeft = 70, kRight = 30, kTop = 50,
                 kBottom = 50;
constexpr double kHeader = 50,
                 kLegendLine = 17;  // the legend stands below the axes, where no curve can be
// Of Okabe and Ito's palette, which people with colour blindness can tell apart; dashes and markers
// differ too.
const char* const kColors[] = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                               "#E69F00", "#56B4E9", "#000000"};
const char* const kDashes[] = {"", "6 3", "2 3", "8 3 2 3"};

std::string number(double v) { return base::number_text("%.2f", v); }

std::string label(double x, double y, const std::string& text, const char* anchor, int size = 12,
                  const char* more = "") {
  return "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\" text-anchor=\"" + anchor +
         "\" font-size=\"" + std::to_string(size) + "\" " + more + ">" + html_text(text) +
         "</text>\n";
}

std::string line(double x1, double y1, double x2, double y2, const char* color) {
  return "<line x1=\"" + number(x1) + "\" y1=\"" + number(y1) + "\" x2=\"" + number(x2) +
         "\" y2=\"" + number(y2) + "\" stroke=\"" + color + "\"/>\n";
}

std::string time_text(double us) {
  const auto plain = [](double v) { return base::number_text("%g", v); };
  if (us >= 1e6) return plain(us / 1e6) + " s";
  return us >= 1e3 ? plain(us / 1e3) + " ms" : plain(us) + " us";
}

using Curves =
    std::map<std::pair<std::string, int>, std::vector<const CommRow*>>;  // by backend and ranks

class Panel {
 public:
  Panel(const Curves& curves, double x, double y) : curves_(curves), x_(x + kLeft), y_(y + kTop) {
    double least = 1e300, most = 0;
    for (const auto& [name, rows] : curves)
      for (const CommRow* r : rows) {
        low_x_ = std::min(low_x_, std::log2(std::max<double>(1, static_cast<double>(r->bytes))));
        high_x_ = std::max(high_x_, std::log2(std::max<double>(1, static_cast<double>(r->bytes))));
        least = std::min(least, std::max(r->p50_us, 1e-3));
        most = std::max(most, r->p50_us);
      }
    if (high_x_ - low_x_ < 1) low_x_ -= 0.5, high_x_ += 0.5;
    low_y_ = std::floor(std::log10(least));
    high_y_ = std::max(low_y_ + 1, std::ceil(std::log10(most)));
  }

  std::string draw(const std::string& title) const {
    std::string out = label(x_, y_ - 14, title, "start", 15, "font-weight=\"bold\"");
    out += axes();
    int index = 0;
    for (const auto& [name, rows] : curves_) {
      out += curve(rows, index);
      const double at = y_ + height() + kBottom + kLegendLine * index;
      const std::string color = kColors[index % 7];
      out += "<line x1=\"" + number(x_ + 12) + "\" y1=\"" + number(at - 4) + "\" x2=\"" +
             number(x_ + 38) + "\" y2=\"" + number(at - 4) + style(index) + "/>\n<circle cx=\"" +
             number(x_ + 25) + "\" cy=\"" + number(at - 4) + "\" r=\"3\" fill=\"" + color +
             "\"/>\n";
      out += label(
          x_ + 44, at,
          name.first + ", " + std::to_string(name.second) + (name.second == 1 ? " rank" : " ranks"),
          "start");
      ++index;
    }
    return out;
  }

 private:
  double x(double bytes) const {
    return x_ + (std::log2(std::max(1.0, bytes)) - low_x_) / (high_x_ - low_x_) * width();
  }
  double y(double us) const {
    return y_ + height() -
           (std::log10(std::max(us, 1e-3)) - low_y_) / (high_y_ - low_y_) * height();
  }
  static double width() { return kPanelWidth - kLeft - kRight; }
  static double height() { return kPanelHeight - kTop - kBottom; }

  static std::string style(int index) {
    return std::string("\" fill=\"none\" stroke-width=\"2\" stroke=\"") + kColors[index % 7] +
           "\" stroke-dasharray=\"" + kDashes[index / 7 % 4] + "\"";
  }

  std::string axes() const {
    std::string out;
    for (double decade = low_y_; decade <= high_y_; ++decade) {
      const double at = y(std::pow(10, decade));
      out += line(x_, at, x_ + width(), at, "#dddddd") +
             label(x_ - 6, at + 4, time_text(std::pow(10, decade)), "end");
    }
    const double step = std::max(1.0, std::ceil((high_x_ - low_x_) / 8));
    for (double power = std::ceil(low_x_); power <= high_x_ + 1e-9; power += step) {
      const double at = x(std::exp2(power));
      out += line(at, y_, at, y_ + height(), "#dddddd") +
             label(at, y_ + height() + 18,
                   bytes_text(static_cast<std::int64_t>(std::llround(std::exp2(power)))), "middle");
    }
    out += line(x_, y_, x_, y_ + height(), "#444444") +
           line(x_, y_ + height(), x_ + width(), y_ + height(), "#444444");
    return out + label(x_ + width() / 2, y_ + height() + 38, "bytes", "middle") +
           label(x_ - kLeft + 8, y_ - 14, "p50", "start");
  }

  std::string curve(const std::vector<const CommRow*>& rows, int index) const {
    std::string points, dots;
    for (const CommRow* r : rows) {
      const double px = x(static_cast<double>(r->bytes)), py = y(r->p50_us);
      points += number(px) + "," + number(py) + " ";
      dots += "<circle cx=\"" + number(px) + "\" cy=\"" + number(py) + "\" r=\"3\" fill=\"" +
              kColors[index % 7] + "\"><title>" +
              html_text(r->backend + ", " + bytes_text(r->bytes) + ": " + number(r->p50_us) +
                        " us, " + number(r->busbw) + " GB/s") +
              "</title></circle>\n";
    }
    return "<polyline points=\"" + points + style(index) + "/>\n" + dots;
  }

  const Curves& curves_;
  const double x_, y_;
  double low_x_ = 1e300, high_x_ = -1e300, low_y_ = 0, high_y_ = 1;
};

}  // namespace

std::string to_svg(const CommReport& report) {
  std::vector<std::pair<std::string, Curves>> panels;
  for (const auto& [name, op] : comm_ops()) {
    Curves curves;
    for (const CommRow& row : report.rows)
      if (row.op == name && row.bytes > 0) curves[{row.backend, row.ranks}].push_back(&row);
    if (!curves.empty()) panels.emplace_back(name, std::move(curves));
  }
  std::size_t legend = 0;
  for (const auto& [name, curves] : panels) legend = std::max(legend, curves.size());
  const int columns = panels.size() > 1 ? 2 : 1,
            lines = (static_cast<int>(panels.size()) + columns - 1) / columns;
  const double panel_height = kPanelHeight + kLegendLine * static_cast<double>(legend);
  const double width = columns * kPanelWidth, height = kHeader + lines * panel_height;
  std::string out =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + number(width) + "\" height=\"" +
      number(height) + "\" viewBox=\"0 0 " + number(width) + " " + number(height) +
      "\" font-family=\"sans-serif\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
  out += label(12, 22,
               "engine bench comm: median time of the slowest rank, " + report.rows.front().dtype,
               "start", 15);
  out += label(12, 40,
               report.heading.machine.cpu + ", " +
                   std::to_string(report.heading.machine.allowed_cores) + " cores; " +
                   report.heading.build,
               "start", 11);
  for (std::size_t i = 0; i < panels.size(); ++i) {
    const double x = static_cast<double>(i % static_cast<std::size_t>(columns)) * kPanelWidth;
    const double y =
        kHeader + static_cast<double>(i / static_cast<std::size_t>(columns)) * panel_height;
    out += Panel(panels[i].second, x, y).draw(panels[i].first);
  }
  return out + "</svg>\n";
}

}  // namespace tools
