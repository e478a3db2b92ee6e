// Implements names and escapes of the two formats.
#include "io/metrics/exposition_text.h"

#include <cmath>

#include "io/base/text/text_parts.h"

namespace io {
namespace {

// `quotes` is true for a label's value, which quotes would end.
std::string escaped(std::string_view text, bool quotes) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || (quotes && c == '"')) out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out;
}

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return base::shortest_text(value);
}

}  // namespace

ExpositionText& ExpositionText::gauge(std::string_view name, std::string_view help) {
  return family(name, help, "gauge");
}

ExpositionText& ExpositionText::counter(std::string_view name, std::string_view help) {
  return family(name, help, "counter");
}

ExpositionText& ExpositionText::family(std::string_view name, std::string_view help,
                                       std::string_view type) {
  const std::string total = type == "counter" ? "_total" : "";
  name_ = std::string(name) + total;
  const std::string shown = format_ == Format::kOpenMetrics ? std::string(name) : name_;
  text_ += "# TYPE " + shown + " " + std::string(type) + "\n";
  if (format_ == Format::kOpenMetrics)
    for (const char* unit : {"seconds", "bytes", "ratio"})
      if (name.ends_with(std::string("_") + unit)) text_ += "# UNIT " + shown + " " + unit + "\n";
  text_ += "# HELP " + shown + " " + escaped(help, format_ == Format::kOpenMetrics) + "\n";
  return *this;
}

ExpositionText& ExpositionText::sample(double value, const Labels& labels) {
  text_ += name_;
  for (std::size_t i = 0; i < labels.size(); ++i)
    text_ += (i == 0 ? "{" : ",") + std::string(labels[i].first) + "=\"" +
             escaped(labels[i].second, true) + "\"";
  if (!labels.empty()) text_ += "}";
  text_ += " " + number(value) + "\n";
  return *this;
}

std::string ExpositionText::finish() const {
  return format_ == Format::kOpenMetrics ? text_ + "# EOF\n" : text_;
}

ExpositionText::Format ExpositionText::format_for(std::string_view accept) {
  return accept.find("application/openmetrics-text") != std::string_view::npos
             ? Format::kOpenMetrics
             : Format::kPrometheus;
}

const char* ExpositionText::content_type(Format format) {
  return format == Format::kOpenMetrics
             ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
             : "text/plain; version=0.0.4; charset=utf-8";
}

}  // namespace io
