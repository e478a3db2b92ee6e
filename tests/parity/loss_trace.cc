// Reading and comparing loss traces.
#include "tests/parity/loss_trace.h"

#include <algorithm>
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

std::optional<std::string> missing_steps(const std::vector<double>& expected,
                                         const std::vector<double>& got, std::size_t steps) {
  if (expected.size() >= steps && got.size() >= steps) return std::nullopt;
  return "expected " + std::to_string(steps) + " steps, got " + std::to_string(got.size()) +
         " and " + std::to_string(expected.size()) + " stored ones";
}

std::optional<std::string> difference_at(std::size_t i, double expected, double got,
                                         double relative) {
  const double difference = std::abs(got - expected) / std::abs(expected);
  if (difference <= relative) return std::nullopt;  // not for NaN
  char text[160];
  std::snprintf(text, sizeof text,
                "step %zu: loss %.17g, expected %.17g: relative difference %.3g, allowed %.3g",
                i + 1, got, expected, difference, relative);
  return text;
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

std::optional<std::string> first_difference(const std::vector<double>& expected,
                                            const std::vector<double>& got, std::size_t steps,
                                            double relative) {
  if (const auto missing = missing_steps(expected, got, steps)) return missing;
  for (std::size_t i = 0; i < steps; ++i)
    if (const auto difference = difference_at(i, expected[i], got[i], relative)) return difference;
  return std::nullopt;
}

std::optional<std::string> first_stray(const std::vector<double>& exact,
                                       const std::vector<double>& peer,
                                       const std::vector<double>& got, std::size_t steps) {
  if (const auto missing = missing_steps(exact, peer, steps)) return missing;
  double allowed = 1e-6;
  for (std::size_t i = 0; i < steps; ++i)
    allowed = std::max(allowed, 5 * std::abs(peer[i] - exact[i]) / std::abs(exact[i]));
  return first_difference(exact, got, steps, allowed);
}

}  // namespace parity
