// Both formats, to the letter.
#include "io/metrics/exposition_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace {

using io::ExpositionText;
using Format = ExpositionText::Format;

std::string example(Format format) {
  ExpositionText out(format);
  out.gauge("engine_loss", "The \"loss\",\nof a \\ step.").sample(0.1);
  out.counter("engine_sent_bytes", "Sent.").sample(3e9);
  out.gauge("engine_phase_seconds", "Phases.");
  out.sample(0.25, {{"rank", "0"}, {"phase", "a\"b\\c\nd"}}).sample(NAN, {{"rank", "1"}});
  out.sample(INFINITY).sample(-INFINITY);
  return out.finish();
}

TEST(ExpositionText, OpenMetrics) {
  EXPECT_EQ(example(Format::kOpenMetrics),
            "# TYPE engine_loss gauge\n"
            "# HELP engine_loss The \\\"loss\\\",\\nof a \\\\ step.\n"
            "engine_loss 0.1\n"
            "# TYPE engine_sent_bytes counter\n"
            "# UNIT engine_sent_bytes bytes\n"
            "# HELP engine_sent_bytes Sent.\n"
            "engine_sent_bytes_total 3e+09\n"
            "# TYPE engine_phase_seconds gauge\n"
            "# UNIT engine_phase_seconds seconds\n"
            "# HELP engine_phase_seconds Phases.\n"
            "engine_phase_seconds{rank=\"0\",phase=\"a\\\"b\\\\c\\nd\"} 0.25\n"
            "engine_phase_seconds{rank=\"1\"} NaN\n"
            "engine_phase_seconds +Inf\n"
            "engine_phase_seconds -Inf\n"
            "# EOF\n");
}

TEST(ExpositionText, PrometheusNamesCountersByTheirSamples) {
  EXPECT_EQ(example(Format::kPrometheus),
            "# TYPE engine_loss gauge\n"
            "# HELP engine_loss The \"loss\",\\nof a \\\\ step.\n"
            "engine_loss 0.1\n"
            "# TYPE engine_sent_bytes_total counter\n"
            "# HELP engine_sent_bytes_total Sent.\n"
            "engine_sent_bytes_total 3e+09\n"
            "# TYPE engine_phase_seconds gauge\n"
            "# HELP engine_phase_seconds Phases.\n"
            "engine_phase_seconds{rank=\"0\",phase=\"a\\\"b\\\\c\\nd\"} 0.25\n"
            "engine_phase_seconds{rank=\"1\"} NaN\n"
            "engine_phase_seconds +Inf\n"
            "engine_phase_seconds -Inf\n");
}

TEST(ExpositionText, TheScraperChooses) {
  EXPECT_EQ(
      ExpositionText::format_for("application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1"),
      Format::kOpenMetrics);
  EXPECT_EQ(ExpositionText::format_for("text/plain;version=0.0.4"), Format::kPrometheus);
  EXPECT_EQ(ExpositionText::format_for(""), Format::kPrometheus);
}

}  // namespace
