// Formats tables, CSV and JSON of ClassCounts and of LabelScores.
#include "tools/report/text/class_report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "io/base/files/io_error.h"
#include "io/base/text/escape_text.h"
#include "io/base/text/text_parts.h"
#include "io/checkpoint/atomic_file.h"

namespace tools {
namespace {

constexpr std::int64_t kMaxInJson = 100;

std::string left(const std::string& text, std::size_t width) {
  return text + std::string(width > text.size() ? width - text.size() : 0, ' ');
}
std::string right(const std::string& text, std::size_t width) {
  return std::string(width > text.size() ? width - text.size() : 0, ' ') + text;
}

std::string mean_line(const char* kind, const engine::ClassCounts::Means& means) {
  char text[120];
  std::snprintf(text, sizeof text, "%s: precision %.4f, recall %.4f, F1 %.4f\n", kind,
                means.precision, means.recall, means.f1);
  return text;
}

const std::string& name_of(const std::vector<std::string>& names, std::int64_t c) {
  return names.at(static_cast<std::size_t>(c));
}

void add_means(base::JsonWriter& object, const char* key, const engine::ClassCounts::Means& means) {
  object.key(key).begin_object().member("precision", means.precision);
  object.member("recall", means.recall).member("f1", means.f1).end_object();
}

std::string class_table(const engine::ClassCounts& counts, const std::vector<std::string>& shown,
                        std::size_t width) {
  std::string text = left("class", width) + "  precision  recall      F1     IoU  support\n";
  for (std::int64_t c = 0; c < counts.classes(); ++c) {
    char numbers[120];
    std::snprintf(numbers, sizeof numbers, "  %9.4f  %6.4f  %6.4f  %6.4f  %7lld\n",
                  counts.precision(c), counts.recall(c), counts.f1(c), iou(counts, c),
                  static_cast<long long>(counts.labelled(c)));
    text += left(name_of(shown, c), width) + numbers;
  }
  return text;
}

std::string matrix_table(const engine::ClassCounts& counts, const std::vector<std::string>& shown,
                         std::size_t width) {
  constexpr std::size_t kColumn = 8;
  std::string text = "confusion matrix: a row for each label, a column for each prediction\n" +
                     std::string(width, ' ');
  for (const std::string& name : shown)
    text += " " + right(name.size() <= kColumn ? name : name.substr(0, kColumn - 1) + "~", kColumn);
  text += "\n";
  for (std::int64_t label = 0; label < counts.classes(); ++label) {
    text += left(name_of(shown, label), width);
    for (std::int64_t c = 0; c < counts.classes(); ++c)
      text += " " + right(std::to_string(counts.confusion(label, c)), kColumn);
    text += "\n";
  }
  return text;
}

}  // namespace

std::string class_tables(const engine::ClassCounts& counts, const std::vector<std::string>& names) {
  std::string text =
      mean_line("mean of classes", counts.macro()) +
      mean_line("weighted by support", counts.weighted()) +
      base::number_text("expected calibration error: %.4f (15 bins)\n", counts.calibration_error());
  if (counts.classes() > kMaxInTables) return text;
  std::vector<std::string> shown;
  std::size_t width = 5;
  for (const std::string& name : names) {
    shown.push_back(base::escape_text(name));
    width = std::max(width, shown.back().size());
  }
  return text + class_table(counts, shown, width) + matrix_table(counts, shown, width);
}

std::string class_csv(const engine::ClassCounts& counts, const std::vector<std::string>& names) {
  std::string text = "class,precision,recall,f1,support,iou\n";
  for (std::int64_t c = 0; c < counts.classes(); ++c)
    text += base::csv_field(name_of(names, c)) + "," + base::shortest_text(counts.precision(c)) +
            "," + base::shortest_text(counts.recall(c)) + "," + base::shortest_text(counts.f1(c)) +
            "," + std::to_string(counts.labelled(c)) + "," + base::shortest_text(iou(counts, c)) +
            "\n";
  return text;
}

void add_classes(base::JsonWriter& object, const engine::ClassCounts& counts,
                 const std::vector<std::string>& names) {
  add_means(object, "macro", counts.macro());
  add_means(object, "weighted", counts.weighted());
  object.member("mean_iou", mean_iou(counts));
  object.member("calibration_error", counts.calibration_error());
  object.key("classes").begin_array();
  for (std::int64_t c = 0; c < counts.classes(); ++c) {
    object.begin_object().member("class", name_of(names, c));
    object.member("precision", counts.precision(c)).member("recall", counts.recall(c));
    object.member("f1", counts.f1(c)).member("iou", iou(counts, c));
    object.member("support", counts.labelled(c)).end_object();
  }
  object.end_array();
  if (counts.classes() > kMaxInJson) return;
  object.key("confusion").begin_array();
  for (std::int64_t label = 0; label < counts.classes(); ++label) {
    object.begin_array();
    for (std::int64_t c = 0; c < counts.classes(); ++c) object.value(counts.confusion(label, c));
    object.end_array();
  }
  object.end_array();
}

void write_confusion(const engine::ClassCounts& counts, const std::vector<std::string>& names,
                     const std::string& path) {
  if (!counts.has_matrix())
    throw io::ConfigError("--confusion: found " + std::to_string(counts.classes()) +
                          " classes, expected at most " +
                          std::to_string(engine::ClassCounts::kMaxForMatrix));
  std::string text = "label";
  for (const std::string& name : names) text += "," + base::csv_field(name);
  text += "\n";
  for (std::int64_t label = 0; label < counts.classes(); ++label) {
    text += base::csv_field(name_of(names, label));
    for (std::int64_t c = 0; c < counts.classes(); ++c)
      text += "," + std::to_string(counts.confusion(label, c));
    text += "\n";
  }
  io::write_file_atomically(path, text);
}

std::string label_table(const engine::LabelScores& scores, const std::vector<std::string>& names) {
  if (std::ssize(names) > kMaxInTables) return "";
  std::size_t width = 5;
  for (const std::string& name : names) width = std::max(width, base::escape_text(name).size());
  std::string table =
      left("label", width) + "  average precision  precision  recall      F1  positives   known\n";
  for (std::size_t k = 0; k < names.size(); ++k) {
    const engine::LabelScore& label = scores.labels[k];
    char line[128];
    std::snprintf(line, sizeof line, "  %17s     %.4f  %.4f  %.4f  %9lld  %6lld\n",
                  std::isnan(label.average_precision)
                      ? "undefined"
                      : base::number_text("%.4f", label.average_precision).c_str(),
                  label.precision(), label.recall(), label.f1(),
                  static_cast<long long>(label.positives), static_cast<long long>(label.known));
    table += left(base::escape_text(names[k]), width) + line;
  }
  return table;
}

std::string label_csv(const engine::LabelScores& scores, const std::vector<std::string>& names) {
  std::string lines = "label,average_precision,precision,recall,f1,positives,known,auc\n";
  for (std::size_t k = 0; k < names.size(); ++k) {
    const engine::LabelScore& label = scores.labels[k];
    lines +=
        base::csv_field(names[k]) + "," +
        (std::isnan(label.average_precision) ? "" : base::shortest_text(label.average_precision)) +
        "," + base::shortest_text(label.precision()) + "," + base::shortest_text(label.recall()) +
        "," + base::shortest_text(label.f1()) + "," + std::to_string(label.positives) + "," +
        std::to_string(label.known) + "," +
        (std::isnan(label.roc_auc) ? "" : base::shortest_text(label.roc_auc)) + "\n";
  }
  return lines;
}

void add_labels(base::JsonWriter& object, const engine::LabelScores& scores,
                const std::vector<std::string>& names) {
  object.member("map", scores.mean_average_precision()).member("micro_f1", scores.micro_f1());
  object.member("macro_f1", scores.macro_f1()).member("auc", scores.mean_roc_auc());
  object.key("labels").begin_array();
  for (std::size_t k = 0; k < names.size(); ++k) {
    const engine::LabelScore& label = scores.labels[k];
    object.begin_object().member("label", names[k]);
    object.member("average_precision", label.average_precision).member("auc", label.roc_auc);
    object.member("precision", label.precision()).member("recall", label.recall());
    object.member("f1", label.f1()).member("positives", label.positives);
    object.member("known", label.known).end_object();
  }
  object.end_array();
}

}  // namespace tools
