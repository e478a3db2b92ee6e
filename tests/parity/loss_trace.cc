// Reading and comparing loss traces.
#include "tests/parity/loss_trace.h"

#include <cmath>
#include <cstdio>
#include <sstream>
#include <stdexcept>

#include "tests/support/test_support.h"

namespace parity {
namespace {

// The number after "key": in one line of JSON.
double number_of(const std::string& line, const std::string& key) {
  const std::string mark = "\"" + key + "\":";
  const std::size_t at = line.find(mark);
  if (at == std::string::npos) throw std::runtime_error("no " + mark + " in: " + line);
  return std::strtod(line.c_str() + at + mark.size(), nullptr);
}

}  // namespace

std::vector<double> read_trace(const std::string& path) {
  std::vector<double> losses;
  std::istringstream lines(test_support::read_text(path));
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty() && line[0] != '#') losses.push_back(std::stod(line));
  }
  return losses;
}

std::vector<double> read_step_losses(const std::string& path) {
  std::vector<double> losses;
  std::istringstream lines(test_support::read_text(path));
  for (std::string line; std::getline(lines, line);) {
    if (line.find("\"event\":\"step\"") == std::string::npos) continue;
    if (number_of(line, "step") != static_cast<double>(losses.size() + 1)) {
      throw std::runtime_error("expected step " + std::to_string(losses.size() + 1) + ": " + line);
    }
    losses.push_back(number_of(line, "loss"));
  }
  return losses;
}

std::optional<std::string> first_difference(const std::vector<double>& expected, const std::vector<double>& got,
                                            std::size_t steps, double relative) {
  if (expected.size() < steps || got.size() < steps) {
    return "expected " + std::to_string(steps) + " steps, got " + std::to_string(got.size()) + " and " +
           std::to_string(expected.size()) + " stored ones";
  }
  for (std::size_t i = 0; i < steps; ++i) {
    const double difference = std::abs(got[i] - expected[i]) / std::abs(expected[i]);
    if (difference <= relative) continue;  // false for NaN
    char text[160];
    std::snprintf(text, sizeof text, "step %zu: loss %.17g, expected %.17g: relative difference %.3g, allowed %.3g", i + 1,
                  got[i], expected[i], difference, relative);
    return text;
  }
  return std::nullopt;
}

}  // namespace parity
