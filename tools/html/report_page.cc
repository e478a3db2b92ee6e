// Which charts and tables a page has.
#include "tools/html/report_page.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "io/base/text/text_parts.h"
#include "tools/html/environment_table.h"
#include "tools/html/page_files.h"
#include "tools/html/svg_chart.h"
#include "tools/report/output/build_info.h"

namespace tools {
namespace {

// The page can fetch nothing, whatever it may contain.
constexpr const char* kPolicy =
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'";

using Points = std::vector<std::pair<double, double>>;

constexpr const char* kPhaseTitles[5] = {"data", "forward", "backward", "communication", "update"};

std::string name_of(const RunHistory& run) {
  const std::size_t slash = run.folder.find_last_not_of('/');
  const std::string path = run.folder.substr(0, slash + 1);
  return path.substr(path.find_last_of('/') + 1);
}

// A browser would end a line behind the hyphens of an option.
std::string words_html(const std::string& command) {
  std::string out;
  for (const std::string& word : base::split_text(command, ' '))
    out += (out.empty() ? "" : " ") + ("<span class=\"word\">" + html_text(word)) + "</span>";
  return out;
}

// "n1 (2 ranks), n2 (2 ranks)"
std::string hosts_text(const std::vector<std::string>& hosts) {
  std::vector<std::string> parts;
  for (std::size_t first = 0, end = 0; first < hosts.size(); first = end) {
    for (end = first + 1; end < hosts.size() && hosts[end] == hosts[first];) ++end;
    parts.push_back(hosts[first] +
                    (end - first == 1 ? "" : " (" + std::to_string(end - first) + " ranks)"));
  }
  return base::join_text(parts);
}

using Step = RunHistory::Step;
using Evaluation = RunHistory::Evaluation;
using Averaging = RunHistory::Averaging;
using PointsOfRun = std::function<Points(const RunHistory&)>;

// By step, without missing values.
template <class Entry>
PointsOfRun values_of(std::vector<Entry> RunHistory::*list, double Entry::*value) {
  return [list, value](const RunHistory& run) {
    Points points;
    for (const Entry& entry : run.*list)
      if (std::isfinite(entry.*value)) points.emplace_back(entry.step, entry.*value);
    return points;
  };
}
PointsOfRun of_steps(double Step::*value) { return values_of(&RunHistory::steps, value); }
PointsOfRun of_tests(double Evaluation::*value) {
  return values_of(&RunHistory::evaluations, value);
}

struct Curve {
  const char* name;
  PointsOfRun points;
  // Distinguishes the curves of a run: 0 training, 1 test, 2 more of the test.
  int color = 0;
  bool of_tests() const { return color > 0; }
};
struct CurveChart {
  Chart axes;
  std::vector<Curve> curves;
  bool has_marks = false;
};

// The page of a single run also shows how often the label is among the first 5 predictions.
std::vector<CurveChart> curve_charts(bool is_one) {
  const Curve top5{"test, among the first 5", of_tests(&Evaluation::top5), 2};
  std::vector<Curve> accuracies{{"training", of_steps(&Step::accuracy)},
                                {"test", of_tests(&Evaluation::accuracy), 1}};
  if (is_one) accuracies.push_back(top5);
  return {
      {.axes = {.title = "Loss", .y_name = "loss"},
       .curves = {{"training", of_steps(&Step::loss)}, {"test", of_tests(&Evaluation::loss), 1}},
       .has_marks = true},
      {.axes = {.title = "Accuracy", .y_name = "share"}, .curves = std::move(accuracies)},
      {.axes = {.title = "Label among the first 5 predictions, test", .y_name = "share"},
       .curves = is_one ? std::vector<Curve>{} : std::vector{top5}},
      {.axes = {.title = "Perplexity of the test set", .y_name = "perplexity"},
       .curves = {{"test", of_tests(&Evaluation::perplexity), 1}}},
      {.axes = {.title = "Explained share of the variance (R2)", .y_name = "R2"},
       .curves = {{"test", of_tests(&Evaluation::r2), 1}}},
      {.axes = {.title = "Mean absolute error, in the target's unit",
                .y_name = "error",
                .from_zero = true},
       .curves = {{"test", of_tests(&Evaluation::mae), 1}}},
      {.axes = {.title = "Learning rate", .y_name = "lr", .from_zero = true},
       .curves = {{"learning rate", of_steps(&Step::lr)}}},
      {.axes = {.title = "Speed", .y_name = "samples/s", .from_zero = true},
       .curves = {{"samples a second", of_steps(&Step::samples_per_s)}},
       .has_marks = true},
      {.axes = {.title = "Spread of the replicas when they are averaged", .y_name = "spread"},
       .curves = {{"spread", values_of(&RunHistory::averagings, &Averaging::spread)}}},
      {.axes = {.title = "Sent by each rank", .y_name = "bytes", .from_zero = true},
       .curves = {{"bytes", values_of(&RunHistory::averagings, &Averaging::bytes_sent)}}},
  };
}

// Returns null if the run has no evaluation with this value.
const Evaluation* best_evaluation(const RunHistory& run, double Evaluation::*value) {
  const Evaluation* best = nullptr;
  for (const Evaluation& e : run.evaluations)
    if (std::isfinite(e.*value) && (best == nullptr || e.*value > best->*value)) best = &e;
  return best;
}

std::string best_accuracy_text(const RunHistory& run) {
  const Evaluation* best = best_evaluation(run, &Evaluation::accuracy);
  if (best == nullptr) return "";
  return base::number_text("%.2f\u00a0%%", 100 * best->accuracy) + " after step " +
         base::number_text("%.0f", best->step);
}

std::string best_r2_text(const RunHistory& run) {
  const Evaluation* best = best_evaluation(run, &Evaluation::r2);
  if (best == nullptr) return "";
  return base::number_text("%.4f", best->r2) + " (mean absolute error " + short_number(best->mae) +
         ") after step " + base::number_text("%.0f", best->step);
}

std::string median_rate_text(const RunHistory& run) {
  std::vector<double> rates;
  for (const Step& s : run.steps)
    if (std::isfinite(s.samples_per_s)) rates.push_back(s.samples_per_s);
  if (rates.empty()) return "";
  std::ranges::nth_element(rates, rates.begin() + std::ssize(rates) / 2);
  return short_number(rates[rates.size() / 2]);
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
    if (options_.predictions) out_ += predictions_html(*options_.predictions);
    for (const RunHistory& run : runs_) details(run);
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

  // Not in <main>, which is what the script renews.
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
      out_ += "<p class=\"dim\">Its metrics.jsonl contains no training step yet.</p>\n";
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
    results();
    for (const std::string& name : shown_options())
      row("--" + name, [&](const RunHistory& run) { return option_of(run, name); });
    if (!is_one_) other_environments();
    out_ += "</tbody></table></div>\n";
  }

  void results() {
    row("best test accuracy", best_accuracy_text);
    row("best test R2", best_r2_text);
    row("last test loss", [](const RunHistory& run) {
      return run.evaluations.empty() ? "" : short_number(run.evaluations.back().loss);
    });
    row("last training loss", [](const RunHistory& run) {
      return run.steps.empty() ? "" : short_number(run.steps.back().loss);
    });
    row("samples a second (median)", median_rate_text);
    row("training time", [](const RunHistory& run) {
      return run.seconds > 0 ? short_number(run.seconds) + " s" : "";
    });
    row("ranks", [](const RunHistory& run) {
      return run.record.starts.empty() ? "" : std::to_string(run.record.starts.back().hosts.size());
    });
  }

  // Several runs: the options in which they differ; one run: the options that were given.
  std::set<std::string> shown_options() const {
    std::set<std::string> reported;
    for (const RunHistory& run : runs_)
      for (const auto& [name, value] : run.record.options)
        if (is_chosen(value) && (is_one_ ? name != "model" && name != "dataset" : differs(name)))
          reported.insert(name);
    return reported;
  }
  bool differs(const std::string& option) const {
    return std::ranges::any_of(runs_, [&](const RunHistory& run) {
      return option_of(run, option) != option_of(runs_.front(), option);
    });
  }

  // Facts that differ between the last starts of the runs.
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
    // Without a legend.
    if (!is_one_ && chart.series.size() == 1) chart.title += ": " + chart.series.front().name;
    out_ += chart_html(chart, "chart" + std::to_string(++charts_));
  }

  std::string label(const RunHistory& run, const std::string& what) const {
    return is_one_ ? what : name_of(run) + ", " + what;
  }
  // In a chart of this alone.
  std::string only(const RunHistory& run, const std::string& what) const {
    return is_one_ ? what : name_of(run);
  }
  std::string title(const RunHistory& run, const std::string& what) const {
    return is_one_ ? what : what + ": " + name_of(run);
  }

  void curves() {
    out_ += "<h2>Curves</h2><div class=\"charts\">\n";
    const std::size_t begin = out_.size();
    for (const CurveChart& chart : curve_charts(is_one_)) add(filled(chart));
    add(gpus());
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

  // Colors distinguish several runs.
  Chart filled(const CurveChart& curves) const {
    Chart chart = curves.axes;
    int run_color = 0;
    for (const RunHistory& run : runs_) {
      for (const Curve& curve : curves.curves) {
        const bool is_alone = curves.curves.size() == 1;
        Points points = curve.points(run);
        if (!points.empty())
          chart.series.push_back({.name = is_alone ? only(run, curve.name) : label(run, curve.name),
                                  .points = std::move(points),
                                  .color = is_one_ ? curve.color : run_color,
                                  .dots = curve.of_tests()});
      }
      ++run_color;
    }
    if (curves.has_marks && is_one_) chart.marks = marks_of(runs_.front());
    return chart;
  }

  Chart gpus() const {
    Chart chart{.title = "GPU utilization", .y_name = "%", .from_zero = true};
    int run_color = 0;
    for (const RunHistory& run : runs_) {
      std::map<std::string, Points> devices;
      for (const RunHistory::Gpu& g : run.gpus)
        if (std::isfinite(g.utilization)) devices[g.device].emplace_back(g.step, g.utilization);
      int color = run_color++;
      for (auto& [device, points] : devices)
        chart.series.push_back({.name = label(run, "device " + device),
                                .points = std::move(points),
                                .color = color++});
    }
    return chart;
  }

  Chart phases(const RunHistory& run) const {
    Chart chart{.title = title(run, "Where the time of a step goes"),
                .y_name = "ms a step",
                .stacked = true};
    for (int phase = 0; phase < 5; ++phase) {
      ChartSeries series{.name = kPhaseTitles[phase], .color = phase};
      for (const Step& s : run.steps)
        if (std::ranges::all_of(s.phases, [](double v) { return std::isfinite(v); }))
          series.points.emplace_back(s.step, 1000 * s.phases[phase]);
      chart.series.push_back(std::move(series));
    }
    return chart;
  }

  Chart stragglers(const RunHistory& run) const {
    Chart chart{.title = title(run, "The slowest rank"), .y_name = "times the others' median"};
    std::map<int, Points> by_rank;
    for (const Step& s : run.steps)
      if (s.slowest_rank && std::isfinite(s.slowest_ratio))
        by_rank[*s.slowest_rank].emplace_back(s.step, s.slowest_ratio);
    int color = 0;
    for (auto& [rank, points] : by_rank)
      chart.series.push_back({.name = "rank " + std::to_string(rank),
                              .points = std::move(points),
                              .color = color++,
                              .dots = true,
                              .line = false});
    return chart;
  }

  void details(const RunHistory& run) {
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
