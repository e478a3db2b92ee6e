// Chooses the charts and tables of a page.
#include "tools/commands/html/report_page.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "io/base/text/text_parts.h"
#include "tools/commands/html/environment_table.h"
#include "tools/commands/html/page_files.h"
#include "tools/commands/html/svg_chart.h"
#include "tools/report/output/build_info.h"

namespace tools {
namespace {

// The policy forbids the page to fetch anything, whatever it contains.
constexpr const char* kPolicy =
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'";

using Points = std::vector<std::pair<double, double>>;

constexpr const char* kPhaseTitles[5] = {"data", "forward", "backward", "communication", "update"};

std::string name_of(const RunHistory& run) {
  const std::size_t slash = run.folder.find_last_not_of('/');
  const std::string path = run.folder.substr(0, slash + 1);
  return path.substr(path.find_last_of('/') + 1);
}

// Keeps words together, because a browser would break a line after the hyphens of an option.
std::string words_html(const std::string& command) {
  std::string out;
  for (const std::string& word : base::split_text(command, ' '))
    out += (out.empty() ? "" : " ") + ("<span class=\"word\">" + html_text(word)) + "</span>";
  return out;
}

// Returns e.g. "n1 (2 ranks), n2 (2 ranks)".
std::string hosts_text(const std::vector<std::string>& hosts) {
  std::vector<std::string> parts;
  for (std::size_t first = 0, end = 0; first < hosts.size(); first = end) {
    for (end = first + 1; end < hosts.size() && hosts[end] == hosts[first];) ++end;
    parts.push_back(hosts[first] +
                    (end - first == 1 ? "" : " (" + std::to_string(end - first) + " ranks)"));
  }
  return base::join_text(parts);
}

template <class List>
Points points_of(const List& list,
                 const std::function<double(const typename List::value_type&)>& y) {
  Points points;
  for (const auto& entry : list)
    if (const double value = y(entry); std::isfinite(value)) points.emplace_back(entry.step, value);
  return points;
}

std::vector<std::pair<double, std::string>> marks_of(const RunHistory& run) {
  std::vector<std::pair<double, std::string>> marks;
  for (const RunHistory::Event& e : run.events) marks.emplace_back(e.step, e.text);
  return marks;
}

class Page {
 public:
  Page(const std::vector<RunHistory>& runs, const PageOptions& options)
      : runs_(runs), options_(options), is_one_(runs.size() == 1) {}

  std::string text() {
    const std::string title =
        is_one_ ? name_of(runs_.front()) : std::to_string(runs_.size()) + " runs";
    out_ =
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
        "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
        "<meta name=\"color-scheme\" content=\"light dark\">"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"" +
        std::string(kPolicy) + (follows() ? "; connect-src 'self'" : "") + "\">" +
        without_script() + "<title>" + html_text(title) + " \u2013 engine report</title><style>" +
        kPageStyle + "</style></head><body>" + watch_controls() + "<main><h1>" + html_text(title) +
        "</h1>\n";
    for (const RunHistory& run : runs_) lead(run);
    summary();
    curves();
    if (options_.judged) out_ += judged_html(*options_.judged);
    for (std::size_t i = 0; i < runs_.size(); ++i) details(runs_[i], i);
    out_ += "<p class=\"dim\">Made by engine " + html_text(ENGINE_VERSION " " ENGINE_COMMIT) +
            ". Point at a chart, or move to it and use the arrow keys, for its values.</p>"
            "</main><script>" +
            std::string(kChartScript) + (follows() ? kWatchScript : "") +
            "</script></body></html>\n";
    return out_;
  }

 private:
  bool follows() const { return options_.refresh_seconds > 0; }

  std::string without_script() const {
    if (!follows()) return "";
    return "<noscript><meta http-equiv=\"refresh\" content=\"" +
           std::to_string(options_.refresh_seconds) + "\"></noscript>";
  }

  // Outside of <main>, which the script renews.
  std::string watch_controls() const {
    if (!follows()) return "";
    return "<div class=\"watch\" hidden data-seconds=\"" +
           std::to_string(options_.refresh_seconds) +
           "\"><button type=\"button\">Pause</button><span role=\"status\">The page follows the "
           "run.</span></div>";
  }

  void lead(const RunHistory& run) {
    const RunData& d = run.record.data;
    out_ += "<p>" + (is_one_ ? std::string() : "<b>" + html_text(name_of(run)) + "</b>: ") +
            html_text(run.record.model) + " on " + html_text(d.name) + ", " +
            std::to_string(d.train) + " samples to train on and " + std::to_string(d.test) +
            " to test; " + html_text(outcome(run)) + "</p>\n";
    if (run.steps.empty() && run.evaluations.empty())
      out_ += "<p class=\"dim\">Its metrics.jsonl tells of no step yet.</p>\n";
    if (run.unreadable_lines > 0)
      out_ += "<p class=\"dim\">" + std::to_string(run.unreadable_lines) +
              (run.unreadable_lines == 1 ? " line" : " lines") +
              " of its metrics.jsonl could not be read.</p>\n";
  }

  static std::string outcome(const RunHistory& run) {
    const std::string steps = base::number_text("%.0f", run.last_step) + " steps";
    if (!run.exit) return steps + " so far, or it was killed";
    if (*run.exit == 0) return "ended after " + steps;
    return "ended after " + steps + " with exit code " + std::to_string(*run.exit);
  }

  void row(const std::string& name, const std::function<std::string(const RunHistory&)>& cell) {
    std::string cells;
    bool is_empty = true;
    for (const RunHistory& run : runs_) {
      const std::string text = cell(run);
      is_empty = is_empty && text.empty();
      cells += "<td>" + html_text(text) + "</td>";
    }
    if (!is_empty) out_ += "<tr><th scope=\"row\">" + html_text(name) + "</th>" + cells + "</tr>";
  }

  void header() {
    out_ += "<thead><tr><td></td>";
    for (const RunHistory& run : runs_)
      out_ += "<th scope=\"col\">" + html_text(name_of(run)) + "</th>";
    out_ += "</tr></thead>";
  }

  void summary() {
    out_ += "<h2>At a glance</h2><div class=\"scroll\"><table>";
    if (!is_one_) header();
    out_ += "<tbody>";
    row("best test accuracy", [](const RunHistory& run) {
      const RunHistory::Evaluation* best = nullptr;
      for (const auto& e : run.evaluations)
        if (std::isfinite(e.accuracy) && (best == nullptr || e.accuracy > best->accuracy))
          best = &e;
      return best == nullptr ? ""
                             : base::number_text("%.2f\u00a0%%", 100 * best->accuracy) +
                                   " after step " + base::number_text("%.0f", best->step);
    });
    row("best test R2", [](const RunHistory& run) {
      const RunHistory::Evaluation* best = nullptr;
      for (const auto& e : run.evaluations)
        if (std::isfinite(e.r2) && (best == nullptr || e.r2 > best->r2)) best = &e;
      return best == nullptr ? ""
                             : base::number_text("%.4f", best->r2) + " (mean absolute error " +
                                   short_number(best->mae) + ") after step " +
                                   base::number_text("%.0f", best->step);
    });
    row("last test loss", [](const RunHistory& run) {
      return run.evaluations.empty() ? "" : short_number(run.evaluations.back().loss);
    });
    row("last training loss", [](const RunHistory& run) {
      return run.steps.empty() ? "" : short_number(run.steps.back().loss);
    });
    row("samples a second (median)", [](const RunHistory& run) {
      std::vector<double> rates;
      for (const auto& s : run.steps)
        if (std::isfinite(s.samples_per_s)) rates.push_back(s.samples_per_s);
      if (rates.empty()) return std::string();
      std::ranges::nth_element(rates, rates.begin() + std::ssize(rates) / 2);
      return short_number(rates[rates.size() / 2]);
    });
    row("training time", [](const RunHistory& run) {
      return run.seconds > 0 ? short_number(run.seconds) + " s" : "";
    });
    row("ranks", [](const RunHistory& run) {
      return run.record.starts.empty() ? "" : std::to_string(run.record.starts.back().hosts.size());
    });
    // For several runs, show only the options that differ; for one run, the options that were set.
    std::set<std::string> shown;
    for (const RunHistory& run : runs_)
      for (const auto& option : run.record.options) {
        const ConfigValue& value = option.second;
        const bool chosen = value.source != "default" && value.source != "not used";
        const bool differs = std::ranges::any_of(runs_, [&](const RunHistory& other) {
          return option_of(other, option.first) != value.value;
        });
        const bool is_told =
            is_one_ ? option.first != "model" && option.first != "dataset" : differs;
        if (chosen && is_told) shown.insert(option.first);
      }
    for (const std::string& name : shown)
      row("--" + name, [&](const RunHistory& run) { return option_of(run, name); });
    if (!is_one_) other_environments();
    out_ += "</tbody></table></div>\n";
  }

  // Shows the environment facts in which the runs' last starts differ.
  void other_environments() {
    for (const auto& [name, title] : kEnvironmentRows) {
      const auto text = [fact = name](const RunHistory& run) {
        return environment_text(run.record, fact);
      };
      const std::string first = text(runs_.front());
      if (name != kRanksRow &&
          std::ranges::any_of(runs_, [&](const RunHistory& run) { return text(run) != first; }))
        row(title, text);
    }
  }

  static std::string option_of(const RunHistory& run, const std::string& name) {
    const auto found = run.record.options.find(name);
    return found == run.record.options.end() ? "" : found->second.value;
  }

  void add(Chart chart) {
    // A single series has no legend.
    if (!is_one_ && chart.series.size() == 1) chart.title += ": " + chart.series.front().name;
    out_ += chart_html(chart, "chart" + std::to_string(++charts_));
  }

  std::string label(const RunHistory& run, const std::string& what) const {
    return is_one_ ? what : name_of(run) + ", " + what;
  }
  // Names a curve in a chart that shows only `what`.
  std::string only(const RunHistory& run, const std::string& what) const {
    return is_one_ ? what : name_of(run);
  }
  std::string title(const RunHistory& run, const std::string& what) const {
    return is_one_ ? what : what + ": " + name_of(run);
  }

  void curves() {
    out_ += "<h2>Curves</h2><div class=\"charts\">\n";
    const std::size_t begin = out_.size();
    Chart loss{.title = "Loss", .y_name = "loss"}, accuracy{.title = "Accuracy", .y_name = "share"},
        top5{.title = "Label among the first 5 predictions, test", .y_name = "share"},
        perplexity{.title = "Perplexity of the test set", .y_name = "perplexity"},
        r2{.title = "Explained share of the variance (R2)", .y_name = "R2"},
        mae{.title = "Mean absolute error, in the target's unit",
            .y_name = "error",
            .from_zero = true},
        rate{.title = "Learning rate", .y_name = "lr", .from_zero = true},
        speed{.title = "Speed", .y_name = "samples/s", .from_zero = true},
        spread{.title = "Spread of the replicas when they are averaged", .y_name = "spread"},
        bytes{.title = "Sent by each rank", .y_name = "bytes", .from_zero = true},
        gpu{.title = "GPU utilization", .y_name = "%", .from_zero = true};
    int color = 0;
    for (const RunHistory& run : runs_) {
      using Step = RunHistory::Step;
      using Evaluation = RunHistory::Evaluation;
      const int own = color, test = is_one_ ? color + 1 : color;
      const auto series = [&](Chart& chart, const std::string& name, Points points, int c,
                              bool dots) {
        if (!points.empty())
          chart.series.push_back(
              {.name = name, .points = std::move(points), .color = c, .dots = dots});
      };
      series(loss, label(run, "training"),
             points_of(run.steps, [](const Step& s) { return s.loss; }), own, false);
      series(loss, label(run, "test"),
             points_of(run.evaluations, [](const Evaluation& e) { return e.loss; }), test, true);
      series(accuracy, label(run, "training"),
             points_of(run.steps, [](const Step& s) { return s.accuracy; }), own, false);
      series(accuracy, label(run, "test"),
             points_of(run.evaluations, [](const Evaluation& e) { return e.accuracy; }), test,
             true);
      series(is_one_ ? accuracy : top5, only(run, "test, among the first 5"),
             points_of(run.evaluations, [](const Evaluation& e) { return e.top5; }),
             is_one_ ? 2 : color, true);
      series(perplexity, only(run, "test"),
             points_of(run.evaluations, [](const Evaluation& e) { return e.perplexity; }), test,
             true);
      series(r2, only(run, "test"),
             points_of(run.evaluations, [](const Evaluation& e) { return e.r2; }), test, true);
      series(mae, only(run, "test"),
             points_of(run.evaluations, [](const Evaluation& e) { return e.mae; }), test, true);
      series(rate, only(run, "learning rate"),
             points_of(run.steps, [](const Step& s) { return s.lr; }), own, false);
      series(speed, only(run, "samples a second"),
             points_of(run.steps, [](const Step& s) { return s.samples_per_s; }), own, false);
      using Averaging = RunHistory::Averaging;
      series(spread, only(run, "spread"),
             points_of(run.averagings, [](const Averaging& a) { return a.spread; }), own, false);
      series(bytes, only(run, "bytes"),
             points_of(run.averagings, [](const Averaging& a) { return a.bytes_sent; }), own,
             false);
      std::map<std::string, Points> devices;
      for (const RunHistory::Gpu& g : run.gpus)
        if (std::isfinite(g.utilization)) devices[g.device].emplace_back(g.step, g.utilization);
      int device_color = own;
      for (auto& [device, points] : devices)
        series(gpu, label(run, "device " + device), std::move(points), device_color++, false);
      for (Chart* chart : {&loss, &speed}) chart->marks = is_one_ ? marks_of(run) : chart->marks;
      ++color;
    }
    for (const Chart* chart :
         {&loss, &accuracy, &top5, &perplexity, &r2, &mae, &rate, &speed, &spread, &bytes, &gpu})
      add(*chart);
    for (const RunHistory& run : runs_) {
      add(phases(run));
      add(stragglers(run));
    }
    if (out_.size() == begin)
      out_ +=
          "<p>None: the run was reported at one step only. <code>--log-every</code> says how "
          "often a run is.</p>";
    out_ += "</div>\n";
  }

  Chart phases(const RunHistory& run) const {
    Chart chart{.title = title(run, "Where the time of a step goes"),
                .y_name = "ms a step",
                .stacked = true};
    for (int phase = 0; phase < 5; ++phase) {
      ChartSeries series{.name = kPhaseTitles[phase], .color = phase};
      for (const RunHistory::Step& s : run.steps)
        if (std::ranges::all_of(s.phases, [](double v) { return std::isfinite(v); }))
          series.points.emplace_back(s.step, 1000 * s.phases[phase]);
      chart.series.push_back(std::move(series));
    }
    return chart;
  }

  Chart stragglers(const RunHistory& run) const {
    Chart chart{.title = title(run, "The slowest rank"), .y_name = "times the others' median"};
    std::map<int, Points> by_rank;
    for (const RunHistory::Step& s : run.steps)
      if (s.slowest_rank >= 0 && std::isfinite(s.slowest_ratio))
        by_rank[s.slowest_rank].emplace_back(s.step, s.slowest_ratio);
    int color = 0;
    for (auto& [rank, points] : by_rank)
      chart.series.push_back({.name = "rank " + std::to_string(rank),
                              .points = std::move(points),
                              .color = color++,
                              .dots = true,
                              .line = false});
    return chart;
  }

  void details(const RunHistory& run, std::size_t) {
    out_ += "<h2>" + html_text(is_one_ ? "The run" : name_of(run)) + "</h2>\n";
    if (!run.events.empty()) {
      out_ += "<ul>";
      for (const RunHistory::Event& e : run.events)
        out_ +=
            "<li>step " + base::number_text("%.0f", e.step) + ": " + html_text(e.text) + "</li>";
      out_ += "</ul>\n";
    }
    out_ += "<div class=\"scroll\"><table><tbody>";
    const auto line = [&](const std::string& name, const std::string& text) {
      if (!text.empty())
        out_ += "<tr><th scope=\"row\">" + name + "</th><td>" + html_text(text) + "</td></tr>";
    };
    line("id", run.record.id);
    line("folder", run.folder);
    line("data", run.record.data.folder);
    line("digest of the data", run.record.data.digest);
    for (const RunStart& start : run.record.starts) {
      line("started", start.time + " at step " + std::to_string(start.step));
      out_ += "<tr><th scope=\"row\">command</th><td>" + words_html(start.command) + "</td></tr>";
      line("ranks on", hosts_text(start.hosts));
      line("changed", base::join_text(start.changed));
    }
    out_ += "</tbody></table></div>\n" + environment_html(run.record);
    out_ +=
        "<details><summary>All options</summary><div class=\"scroll\">"
        "<table><thead><tr><th scope=\"col\">option</th><th scope=\"col\">value</th>"
        "<th scope=\"col\">from</th></tr></thead><tbody>";
    for (const auto& [name, value] : run.record.options)
      if (!value.value.empty())
        out_ += "<tr><th scope=\"row\">--" + html_text(name) + "</th><td>" +
                html_text(value.value) + "</td><td>" + html_text(value.source) + "</td></tr>";
    out_ += "</tbody></table></div></details>\n";
  }

  const std::vector<RunHistory>& runs_;
  const PageOptions& options_;
  const bool is_one_;
  std::string out_;
  int charts_ = 0;
};

}  // namespace

std::string report_html(const std::vector<RunHistory>& runs, const PageOptions& options) {
  return Page(runs, options).text();
}

}  // namespace tools
