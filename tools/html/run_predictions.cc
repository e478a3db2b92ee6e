// Shows a small confusion matrix as a table; for more classes, as a picture with a list of the most
// common mistakes.
#include "tools/html/run_predictions.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "io/base/formats/base64.h"
#include "io/base/text/text_parts.h"
#include "tools/html/svg_chart.h"

namespace tools {
namespace {

constexpr std::int64_t kMaxInMatrixTable = 20;
constexpr std::size_t kMaxMistakes = 12;

struct Mistake {
  std::int64_t label, prediction, count;
};

class Section {
 public:
  explicit Section(const RunPredictions& run) : run_(run) {}

  std::string text() {
    out_ = "<h2>Predictions</h2>\n";
    if (!run_.left_out.empty()) {
      out_ += "<p class=\"dim\">Left out: " + html_text(run_.left_out) + "</p>\n";
      return out_;
    }
    if (run_.errors) {
      numbers();
      return out_;
    }
    lead();
    if (run_.counts->has_matrix()) matrix();
    samples();
    return out_;
  }

 private:
  const std::string& name(std::int64_t c) const {
    return run_.names.at(static_cast<std::size_t>(c));
  }

  void lead() {
    std::int64_t samples = 0, correct = 0;
    for (std::int64_t c = 0; c < run_.counts->classes(); ++c) {
      samples += run_.counts->labelled(c);
      correct += run_.counts->correct(c);
    }
    const double share =
        samples == 0 ? 0 : static_cast<double>(correct) / static_cast<double>(samples);
    out_ += "<p>" + html_text(run_.checkpoint) + " on the test samples of " + html_text(run_.set) +
            ": " + std::to_string(correct) + " of " + std::to_string(samples) +
            (run_.by_position ? " positions" : "") + " right (" +
            base::number_text("%.2f\u00a0%%", 100 * share) + ")";
    if (run_.by_position)
      out_ += ", mean IoU " + base::number_text("%.4f", engine::mean_iou(*run_.counts));
    out_ += ".</p>\n";
  }

  void numbers() {
    const auto text = [](double value) { return base::number_text("%.6g", value); };
    out_ +=
        "<p>" + html_text(run_.checkpoint) + " on the " + std::to_string(run_.samples) +
        " test samples of " + html_text(run_.set) + ", target " + html_text(run_.target) +
        ": mean squared error " + text(run_.errors->mse) + ", mean absolute error " +
        text(run_.errors->mae) +
        (std::isnan(run_.errors->r2) ? "" : ", R2 " + base::number_text("%.4f", run_.errors->r2)) +
        ".</p>\n";
    if (run_.farthest.empty()) return;
    out_ +=
        "<h3>Worst predictions</h3><p class=\"dim\">The samples farthest from their "
        "targets.</p>\n<div class=\"scroll\"><table><thead><tr><th scope=\"col\">sample</th>"
        "<th scope=\"col\">target</th><th scope=\"col\">prediction</th>"
        "<th scope=\"col\">error</th></tr></thead><tbody>";
    for (const RunPredictions::Number& n : run_.farthest)
      out_ += "<tr><td>" + std::to_string(n.number) + "</td><td>" + text(n.target) + "</td><td>" +
              text(n.prediction) + "</td><td>" + text(n.prediction - n.target) + "</td></tr>";
    out_ += "</tbody></table></div>\n";
  }

  void matrix() {
    const std::int64_t classes = run_.counts->classes();
    out_ +=
        "<h3 id=\"confusion\">Confusion matrix</h3><p class=\"dim\" id=\"confusion-reading\">A row "
        "for each label, from the top, a column for each prediction, from the left: what is right "
        "lies on the diagonal. The stronger the color, the larger the share of the label's "
        "samples.</p>\n";
    if (classes <= kMaxInMatrixTable) return matrix_table();
    matrix_picture();
    mistakes();
    each_class();
  }

  double share(std::int64_t label, std::int64_t prediction) const {
    const std::int64_t of = run_.counts->labelled(label);
    return of == 0 ? 0
                   : static_cast<double>(run_.counts->confusion(label, prediction)) /
                         static_cast<double>(of);
  }

  void matrix_table() {
    const std::int64_t classes = run_.counts->classes();
    out_ +=
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-labelledby=\"confusion\">"
        "<table class=\"confusion\"><thead><tr><td></td>";
    for (std::int64_t c = 0; c < classes; ++c)
      out_ += "<th scope=\"col\">" + html_text(name(c)) + "</th>";
    out_ += "<th scope=\"col\">recall</th></tr></thead><tbody>";
    for (std::int64_t label = 0; label < classes; ++label) {
      out_ += "<tr><th scope=\"row\">" + html_text(name(label)) + "</th>";
      for (std::int64_t c = 0; c < classes; ++c) {
        const std::int64_t count = run_.counts->confusion(label, c);
        // The square root keeps rare mistakes visible beside the correct predictions.
        out_ += "<td class=\"" + std::string(c == label ? "hit" : "miss") +
                "\" style=\"--s:" + base::number_text("%.3f", std::sqrt(share(label, c))) + "\">" +
                (count == 0 ? "" : std::to_string(count)) + "</td>";
      }
      out_ += "<td>" + base::number_text("%.3f", run_.counts->recall(label)) + "</td></tr>";
    }
    out_ += "<tr><th scope=\"row\">precision</th>";
    for (std::int64_t c = 0; c < classes; ++c)
      out_ += "<td>" + base::number_text("%.3f", run_.counts->precision(c)) + "</td>";
    out_ += "<td></td></tr>";
    if (run_.by_position) {
      out_ += "<tr><th scope=\"row\">IoU</th>";
      for (std::int64_t c = 0; c < classes; ++c)
        out_ += "<td>" + base::number_text("%.3f", engine::iou(*run_.counts, c)) + "</td>";
      out_ += "<td></td></tr>";
    }
    out_ += "</tbody></table></div>\n";
  }

  // One square per nonempty cell; with very many classes, only the important ones.
  void matrix_picture() {
    const std::int64_t classes = run_.counts->classes();
    const std::string side = std::to_string(classes);
    out_ += "<svg class=\"heat\" role=\"img\" aria-label=\"confusion matrix of " + side +
            " classes; the tables below have its numbers\" aria-describedby=\"confusion-reading\" "
            "viewBox=\"0 0 " +
            side + " " + side + "\">";
    std::vector<Mistake> cells = mistakes_by_count();
    constexpr std::size_t kMaxSquares = 20'000, kMaxNamed = 3'000;
    if (cells.size() > kMaxSquares) cells.resize(kMaxSquares);
    for (std::int64_t c = 0; c < classes; ++c)
      if (run_.counts->correct(c) > 0) cells.push_back({c, c, run_.counts->correct(c)});
    const bool are_named = cells.size() <= kMaxNamed;
    for (const Mistake& cell : cells) {
      out_ +=
          "<rect class=\"" + std::string(cell.label == cell.prediction ? "f0" : "f1") + "\" x=\"" +
          std::to_string(cell.prediction) + "\" y=\"" + std::to_string(cell.label) +
          "\" width=\"1\" height=\"1\" opacity=\"" +
          base::number_text("%.2f", std::max(0.15, std::sqrt(share(cell.label, cell.prediction)))) +
          (are_named ? "\"><title>" + html_text(cell_text(cell)) + "</title></rect>" : "\"/>");
    }
    out_ += "</svg>\n";
  }

  // Returns e.g. "horse taken for deer: 7 of 100", shown under the pointer.
  std::string cell_text(const Mistake& cell) const {
    const bool right = cell.label == cell.prediction;
    return name(cell.label) + (right ? " recognized" : " taken for " + name(cell.prediction)) +
           ": " + std::to_string(cell.count) + " of " +
           std::to_string(run_.counts->labelled(cell.label));
  }

  std::vector<Mistake> mistakes_by_count() const {
    std::vector<Mistake> found;
    for (std::int64_t label = 0; label < run_.counts->classes(); ++label)
      for (std::int64_t c = 0; c < run_.counts->classes(); ++c)
        if (const std::int64_t count = run_.counts->confusion(label, c); c != label && count > 0)
          found.push_back({label, c, count});
    std::ranges::stable_sort(found, std::ranges::greater(), &Mistake::count);
    return found;
  }

  void mistakes() {
    std::vector<Mistake> all = mistakes_by_count();
    if (all.empty()) return;
    if (all.size() > kMaxMistakes) all.resize(kMaxMistakes);
    out_ +=
        "<div class=\"scroll\"><table><thead><tr><th scope=\"col\">label</th>"
        "<th scope=\"col\">taken for</th><th scope=\"col\">how often</th></tr></thead><tbody>";
    for (const Mistake& m : all)
      out_ += "<tr><td>" + html_text(name(m.label)) + "</td><td>" + html_text(name(m.prediction)) +
              "</td><td>" + std::to_string(m.count) + " of " +
              std::to_string(run_.counts->labelled(m.label)) + "</td></tr>";
    out_ += "</tbody></table></div>\n";
  }

  void each_class() {
    out_ +=
        "<details id=\"classes\"><summary>Each class</summary><div class=\"scroll\"><table><thead>"
        "<tr><th scope=\"col\">class</th><th scope=\"col\">samples</th><th scope=\"col\">recall"
        "</th><th scope=\"col\">precision</th></tr></thead><tbody>";
    for (std::int64_t c = 0; c < run_.counts->classes(); ++c)
      out_ += "<tr><th scope=\"row\">" + html_text(name(c)) + "</th><td>" +
              std::to_string(run_.counts->labelled(c)) + "</td><td>" +
              base::number_text("%.3f", run_.counts->recall(c)) + "</td><td>" +
              base::number_text("%.3f", run_.counts->precision(c)) + "</td></tr>";
    out_ += "</tbody></table></div></details>\n";
  }

  void samples() {
    if (run_.worst.empty()) return;
    out_ +=
        "<h3>Worst predictions</h3><p class=\"dim\">The samples whose label the model finds "
        "least likely.</p>\n<ul class=\"shots\">";
    for (const RunPredictions::Sample& s : run_.worst) {
      out_ += "<li class=\"shot\">";
      if (!s.png.empty())
        out_ += "<img alt=\"test sample " + std::to_string(s.number) + "\" width=\"" +
                std::to_string(s.width) + "\" height=\"" + std::to_string(s.height) +
                "\" src=\"data:image/png;base64," + base::base64_text(s.png) + "\">";
      out_ += "<div>" + named(s.label, s.label_probability) + "</div><div>" +
              (s.label == s.prediction ? "also the prediction"
                                       : "taken for " + named(s.prediction, s.probability)) +
              "</div><div class=\"dim\">sample " + std::to_string(s.number) + "</div></li>";
    }
    out_ += "</ul>\n";
  }

  std::string named(std::int64_t c, double probability) const {
    return "<b>" + html_text(name(c)) + "</b> (" + percent(probability) + ")";
  }

  static std::string percent(double share) {
    if (share < 1e-4) return "below 0.01\u00a0%";
    return base::number_text(share < 0.1 ? "%.2g\u00a0%%" : "%.0f\u00a0%%", 100 * share);
  }

  const RunPredictions& run_;
  std::string out_;
};

}  // namespace

std::string predictions_html(const RunPredictions& run) { return Section(run).text(); }

}  // namespace tools
