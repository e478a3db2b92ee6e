// Implements the choice as a linear program. With y = shares * rate, the sum of y is the rate, and
// every limit is linear: y[i] + y[j] <= rate of the link, sum of y + (n - 2) y[i] <= rate of the
// interface. The origin satisfies all of them, so the simplex method starts there (Dantzig 1951;
// by the rule of Bland, "New finite pivoting rules for the simplex method", 1977, it ends).
#include "tools/launch/group/slice_choice.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "io/base/text/text_parts.h"
#include "tools/launch/group/link_measure.h"

namespace tools {
namespace {

constexpr double kTiny = 1e-9;  // rates are relative to the fastest one
// The part of the best rate that more balanced shares must reach, and the steps of their search.
constexpr double kNearBest = 0.98;
constexpr int kSearchSteps = 12;

// A row of a tableau in condensed form: the coefficients of the variables that are 0, and the value
// of the one that the row is solved for.
struct Row {
  std::vector<double> of;
  double value = 0;
  std::size_t variable = 0;
};

// Maximizes the sum of n variables that are not negative, below the limits of the rows.
class Simplex {
 public:
  Simplex(std::size_t n, std::vector<Row> rows) : n_(n), rows_(std::move(rows)) {
    for (std::size_t r = 0; r < rows_.size(); ++r) rows_[r].variable = n + r;
    zero_.resize(n);
    std::iota(zero_.begin(), zero_.end(), 0);
    goal_ = {std::vector<double>(n, 1.0), 0, 0};
  }

  std::vector<double> solve() {
    while (const auto column = entering()) {
      const std::size_t row = leaving(*column);
      if (row == rows_.size()) break;  // no limit: the rows limit every variable
      pivot(row, *column);
    }
    std::vector<double> solution(n_, 0);
    for (const Row& row : rows_)
      if (row.variable < n_) solution[row.variable] = std::max(row.value, 0.0);
    return solution;
  }

 private:
  std::optional<std::size_t> entering() const {
    std::optional<std::size_t> best;
    for (std::size_t c = 0; c < n_; ++c)
      if (goal_.of[c] > kTiny && (!best || zero_[c] < zero_[*best])) best = c;
    return best;
  }
  std::size_t leaving(std::size_t column) const {
    std::size_t best = rows_.size();
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      if (rows_[r].of[column] <= kTiny) continue;
      const double ratio = rows_[r].value / rows_[r].of[column];
      const bool is_tie = best < rows_.size() && ratio <= least + kTiny;
      if (ratio < least - kTiny || (is_tie && rows_[r].variable < rows_[best].variable)) {
        best = r;
        least = std::min(least, ratio);
      }
    }
    return best;
  }
  void pivot(std::size_t row, std::size_t column) {
    Row& by = rows_[row];
    const double factor = by.of[column];
    by.of[column] = 1;
    for (double& c : by.of) c /= factor;
    by.value /= factor;
    for (std::size_t r = 0; r < rows_.size(); ++r)
      if (r != row) subtract(by, column, rows_[r]);
    subtract(by, column, goal_);
    std::swap(by.variable, zero_[column]);
  }
  void subtract(const Row& by, std::size_t column, Row& from) const {
    const double factor = std::exchange(from.of[column], 0);
    if (factor == 0) return;
    for (std::size_t c = 0; c < n_; ++c) from.of[c] -= factor * by.of[c];
    from.value -= factor * by.value;
  }

  std::size_t n_;
  std::vector<Row> rows_;
  std::vector<std::size_t> zero_;  // [column] its variable
  Row goal_;
};

// The limits of links and interfaces, relative to the fastest link, and of each variable.
std::vector<Row> limits_of(const HostRates& rates, double fastest, double largest) {
  const std::size_t n = rates.hosts();
  std::vector<Row> rows;
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = i + 1; j < n; ++j) {
      Row link{std::vector<double>(n, 0), rates.at(i, j) / fastest};
      link.of[i] = link.of[j] = 1;
      rows.push_back(std::move(link));
    }
    Row interface { std::vector<double>(n, 1), rates.fastest(i) / fastest };
    interface.of[i] = static_cast<double>(n) - 1;
    rows.push_back(std::move(interface));
    Row own{std::vector<double>(n, 0), largest};
    own.of[i] = 1;
    rows.push_back(std::move(own));
  }
  return rows;
}

double sum_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

std::string percent_text(double share) { return base::number_text("%.0f %%", 100 * share); }

}  // namespace

double HostRates::fastest(std::size_t host) const {
  double rate = 0;
  for (std::size_t other = 0; other < hosts_; ++other)
    if (other != host) rate = std::max(rate, at(host, other));
  return rate;
}

double all_reduce_rate(const HostRates& rates, const std::vector<double>& shares) {
  const std::size_t n = rates.hosts();
  double seconds = 0;
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = i + 1; j < n; ++j)
      seconds = std::max(seconds, (shares[i] + shares[j]) / rates.at(i, j));
    seconds = std::max(seconds, (1 + (static_cast<double>(n) - 2) * shares[i]) / rates.fastest(i));
  }
  return 1 / seconds;
}

SliceChoice choose_slices(const HostRates& rates) {
  const std::size_t n = rates.hosts();
  double fastest = 0;
  for (std::size_t i = 0; i < n; ++i) fastest = std::max(fastest, rates.fastest(i));
  const auto solve = [&](double largest) {
    return Simplex(n, limits_of(rates, fastest, largest)).solve();
  };
  std::vector<double> found = solve(1);
  const double enough = kNearBest * sum_of(found);
  double low = enough / static_cast<double>(n), high = *std::ranges::max_element(found);
  for (int i = 0; i < kSearchSteps && low < high; ++i) {
    const double largest = (low + high) / 2;
    std::vector<double> balanced = solve(largest);
    if (sum_of(balanced) >= enough) {
      found = std::move(balanced);
      high = largest;
    } else {
      low = largest;
    }
  }
  SliceChoice choice{.shares = std::vector<double>(n, 1 / static_cast<double>(n))};
  choice.rate = choice.equal_rate = all_reduce_rate(rates, choice.shares);
  const double sum = sum_of(found);
  for (double& share : found) share /= sum;
  const double rate = all_reduce_rate(rates, found);
  if (rate < kMinSliceGain * choice.equal_rate) return choice;
  choice.shares = std::move(found);
  choice.rate = rate;
  return choice;
}

std::string slices_text(const HostRates& rates, const SliceChoice& choice,
                        const std::vector<int>& first_ranks) {
  std::size_t a = 0, b = 1;
  for (std::size_t i = 0; i < rates.hosts(); ++i)
    for (std::size_t j = i + 1; j < rates.hosts(); ++j)
      if (rates.at(i, j) < rates.at(a, b)) std::tie(a, b) = std::pair(i, j);
  double fastest = 0;
  for (std::size_t i = 0; i < rates.hosts(); ++i) fastest = std::max(fastest, rates.fastest(i));
  const std::string links = "slowest link: ranks " + std::to_string(first_ranks[a]) + " and " +
                            std::to_string(first_ranks[b]) + ", " + rate_text_of(rates.at(a, b)) +
                            "; fastest: " + rate_text_of(fastest);
  if (choice.are_equal()) return "Slices: equal, no others are faster by 10 % (" + links + ")";
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < rates.hosts(); ++i)
    parts.push_back("rank " + std::to_string(first_ranks[i]) + " " +
                    percent_text(choice.shares[i]));
  return "Slices: " + base::join_text(parts, ", ") + " of each large sum, expected " +
         base::number_text("%.2g", choice.rate / choice.equal_rate) +
         " times as fast as equal ones (" + links + ")";
}

}  // namespace tools
