// --slices measured: which slices follow from which rates, compared with a search of all of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>

#include "tests/support/expect_contains.h"
#include "tools/launch/group/slice_choice.h"

namespace {

using namespace tools;

// All links have `rate`, but for those that are given.
struct GivenLink {
  std::size_t a, b;
  double rate;
};
HostRates rates_of(std::size_t hosts, double rate, const std::vector<GivenLink>& others) {
  HostRates rates(hosts);
  for (std::size_t a = 0; a < hosts; ++a)
    for (std::size_t b = a + 1; b < hosts; ++b) rates.set(a, b, rate);
  for (const GivenLink& link : others) rates.set(link.a, link.b, link.rate);
  return rates;
}

HostRates random_rates(std::size_t hosts, std::mt19937& random) {
  std::uniform_real_distribution<double> exponent(-2, 1);
  HostRates rates(hosts);
  for (std::size_t a = 0; a < hosts; ++a)
    for (std::size_t b = a + 1; b < hosts; ++b) rates.set(a, b, std::pow(10, exponent(random)));
  return rates;
}

// Returns the best rate of all shares that are multiples of 1 / parts.
double best_of_all(const HostRates& rates, int parts) {
  const std::size_t n = rates.hosts();
  std::vector<double> shares(n, 0);
  double best = 0;
  const std::function<void(std::size_t, int)> search = [&](std::size_t host, int left) {
    if (host + 1 == n) {
      shares[host] = static_cast<double>(left) / parts;
      best = std::max(best, all_reduce_rate(rates, shares));
      return;
    }
    for (int part = 0; part <= left; ++part) {
      shares[host] = static_cast<double>(part) / parts;
      search(host + 1, left - part);
    }
  };
  search(0, parts);
  return best;
}

void expect_valid(const HostRates& rates, const SliceChoice& choice) {
  EXPECT_NEAR(std::accumulate(choice.shares.begin(), choice.shares.end(), 0.0), 1, 1e-9);
  EXPECT_GE(*std::ranges::min_element(choice.shares), 0);
  EXPECT_DOUBLE_EQ(choice.rate, all_reduce_rate(rates, choice.shares));
}

TEST(SliceChoice, IsAsFastAsTheBestOfAllSharesOfRandomMatrices) {
  std::mt19937 random(53);
  int gains = 0;
  for (int i = 0; i < 200; ++i) {
    const std::size_t hosts = 3 + static_cast<std::size_t>(i) % 3;
    const HostRates rates = random_rates(hosts, random);
    const SliceChoice choice = choose_slices(rates);
    expect_valid(rates, choice);
    const double best = best_of_all(rates, hosts == 5 ? 16 : 30);
    if (choice.are_equal()) {
      EXPECT_LT(best, kMinSliceGain / 0.98 * choice.equal_rate) << "matrix " << i;
      continue;
    }
    ++gains;
    EXPECT_GE(choice.rate, 0.98 * best) << "matrix " << i;
    EXPECT_GE(choice.rate, kMinSliceGain * choice.equal_rate);
  }
  EXPECT_GT(gains, 100);
}

// Large matrices: no small change of shares may be faster, since the problem is convex.
TEST(SliceChoice, CannotBeImprovedForManyHosts) {
  std::mt19937 random(54);
  for (const std::size_t hosts : {8, 16}) {
    const HostRates rates = random_rates(hosts, random);
    const SliceChoice choice = choose_slices(rates);
    expect_valid(rates, choice);
    ASSERT_FALSE(choice.are_equal());
    std::vector<double> shares = choice.shares;
    double best = choice.rate;
    std::uniform_int_distribution<std::size_t> any(0, hosts - 1);
    for (int i = 0; i < 20'000; ++i) {
      std::vector<double> changed = shares;
      const std::size_t from = any(random), to = any(random);
      const double moved = changed[from] * std::uniform_real_distribution<double>(0, 1)(random);
      changed[from] -= moved;
      changed[to] += moved;
      if (const double rate = all_reduce_rate(rates, changed); rate > best) {
        best = rate;
        shares = std::move(changed);
      }
    }
    EXPECT_LE(best, choice.rate / 0.98 * (1 + 1e-6)) << hosts << " hosts";
  }
}

TEST(SliceChoice, AvoidsOneSlowLink) {
  const HostRates rates = rates_of(4, 0.1, {{0, 1, 0.01}});
  const SliceChoice choice = choose_slices(rates);
  EXPECT_NEAR(choice.shares[0] + choice.shares[1], 0.18, 0.02);
  EXPECT_NEAR(choice.shares[2], choice.shares[3], 0.02);
  // 5 s for 0.1 GB over the slow link in halves; 1.82 s for the interfaces of hosts 2 and 3.
  EXPECT_NEAR(choice.rate / choice.equal_rate, 5 / 1.82, 0.06);
  const std::string text = slices_text(rates, choice, {0, 1, 2, 3});
  EXPECT_VALUES(text, "ranks 0 1 80 Mbit/s 800 Mbit/s");
  EXPECT_VALUES(text, "2.7 times equal");
}

TEST(SliceChoice, AHostWithSlowLinksSumsNothing) {
  const HostRates rates = rates_of(4, 1, {{0, 3, 0.1}, {1, 3, 0.1}, {2, 3, 0.1}});
  const SliceChoice choice = choose_slices(rates);
  EXPECT_LT(choice.shares[3], 0.02);
  for (const std::size_t host : {0, 1, 2}) EXPECT_NEAR(choice.shares[host], 1.0 / 3, 0.02);
  EXPECT_NEAR(choice.rate / choice.equal_rate, 1.5, 0.05);
  const SliceChoice three = choose_slices(rates_of(3, 1, {{0, 1, 0.05}}));
  EXPECT_GT(three.shares[2], 0.85) << "of three hosts, the one with two fast links sums";
}

TEST(SliceChoice, EqualRatesHaveEqualSlices) {
  const HostRates rates = rates_of(5, 0.125, {{1, 2, 0.12}});
  const SliceChoice choice = choose_slices(rates);
  EXPECT_TRUE(choice.are_equal());
  for (const double share : choice.shares) EXPECT_DOUBLE_EQ(share, 0.2);
  EXPECT_VALUES(slices_text(rates, choice, {0, 2, 4, 6, 8}),
                "Slices: equal, 10 % ranks 2 4, 960 Mbit/s; 1 Gbit/s");
}

}  // namespace
