// Formats metrics as text for Prometheus and compatible programs: OpenMetrics 1.0
// (https://github.com/OpenObservability/OpenMetrics) and Prometheus' older text format 0.0.4, which
// names counters differently.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace io {

class ExpositionText {
 public:
  enum class Format { kPrometheus, kOpenMetrics };
  explicit ExpositionText(Format format) : format_(format) {}

  // Each starts a family, whose samples follow. `help` is one sentence. A counter's name is given
  // without the "_total" that its samples get.
  ExpositionText& gauge(std::string_view name, std::string_view help);
  ExpositionText& counter(std::string_view name, std::string_view help);
  using Labels = std::vector<std::pair<std::string_view, std::string>>;
  ExpositionText& sample(double value, const Labels& labels = {});

  // Returns the whole text, with the end that the format requires.
  std::string finish() const;

  // Returns the format that a scraper accepts according to its Accept header.
  static Format format_for(std::string_view accept);
  static const char* content_type(Format format);

 private:
  ExpositionText& family(std::string_view name, std::string_view help, std::string_view type);

  const Format format_;
  std::string text_, name_;
};

}  // namespace io
