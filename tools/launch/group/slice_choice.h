// Chooses how hosts divide the sums of large all-reduces, from measured rates: the arithmetic.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tools {

// The rates between hosts in GB/s, each in the slower direction.
class HostRates {
 public:
  explicit HostRates(std::size_t hosts) : hosts_(hosts), rates_(hosts * hosts, 0) {}
  std::size_t hosts() const { return hosts_; }
  double at(std::size_t a, std::size_t b) const { return rates_[a * hosts_ + b]; }
  void set(std::size_t a, std::size_t b, double rate) {
    rates_[a * hosts_ + b] = rates_[b * hosts_ + a] = rate;
  }
  // Returns the rate of the host's fastest link, as that of its network interface.
  double fastest(std::size_t host) const;

 private:
  std::size_t hosts_;
  std::vector<double> rates_;
};

struct SliceChoice {
  std::vector<double> shares;       // [host] the fraction that it sums; their sum is 1
  double equal_rate = 0, rate = 0;  // of an all-reduce with equal shares, and with these, in GB/s
  bool are_equal() const { return rate <= equal_rate; }
};

// Returns the GB/s of an all-reduce in which host i sums a fraction of shares[i]. The link of hosts
// i and j carries shares[i] + shares[j] of its bytes in each direction: what one sends to be summed
// by the other, and the sums that it returns. The interface of host i carries those of all its
// links, 1 + (n - 2) shares[i]. The slowest of these counts.
double all_reduce_rate(const HostRates& rates, const std::vector<double>& shares);

// Returns the shares with the highest rate, by linear programming. Among shares within 2 % of it,
// takes those whose largest one is smallest. Returns equal shares if the gain is below
// kMinSliceGain. REQUIRES: three hosts or more, and rates above 0.
SliceChoice choose_slices(const HostRates& rates);
inline constexpr double kMinSliceGain = 1.1;

// Returns "Slices: by measured rates: ...": the shares of hosts, named by their first ranks.
std::string slices_text(const HostRates& rates, const SliceChoice& choice,
                        const std::vector<int>& first_ranks);

}  // namespace tools
