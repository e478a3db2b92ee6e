// SplitMix64 weights in a safetensors file, written with nothing but the standard library.
#include "tests/parity/parity_weights.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "io/base/numbers/split_mix.h"
#include "tests/support/test_support.h"

static_assert(std::endian::native == std::endian::little, "the file format is little-endian");

namespace parity {
namespace {

using Dimensions = std::vector<std::int64_t>;

struct Entry {
  std::string name;
  Dimensions shape;
};

// The entries of tests/models/state_dicts.txt, lines "MODEL NAME [d, d]".
std::vector<Entry> state_dict(const std::string& model) {
  std::istringstream text(
      test_support::read_text(test_support::source_directory() + "/tests/models/state_dicts.txt"));
  std::vector<Entry> entries;
  for (std::string line; std::getline(text, line);) {
    if (!line.starts_with(model + " ")) continue;
    const std::size_t name = model.size() + 1, shape = line.find(" [", name);
    Entry entry{line.substr(name, shape - name), {}};
    std::istringstream numbers(line.substr(shape + 2));
    char separator = 0;
    for (std::int64_t d = 0; numbers >> d; numbers >> separator) entry.shape.push_back(d);
    entries.push_back(entry);
  }
  if (entries.empty()) throw std::runtime_error("no state dict of model " + model);
  return entries;
}

// As SEEDS in parity_weights.py.
std::uint64_t seed_of(const std::string& model) {
  return model == "mlp" ? 14 : model == "convnet" ? 8 : 1;
}

std::int64_t product(const Dimensions& shape, std::size_t first = 0) {
  return std::accumulate(shape.begin() + static_cast<std::ptrdiff_t>(first), shape.end(),
                         std::int64_t{1}, std::multiplies<>());
}

// Values in [-1, 1), multiples of 2^-23.
class SplitMix64 {
 public:
  explicit SplitMix64(std::uint64_t seed) : state_(seed) {}
  double next() {
    state_ += 0x9E3779B97F4A7C15;
    return (static_cast<double>(io::mix_bits(state_) >> 40) - 8388608.0) / 8388608.0;
  }

 private:
  std::uint64_t state_;
};

// Collects tensors, then writes header length, JSON header and data.
class SafetensorsFile {
 public:
  template <class T>
  void add(const std::string& name, const char* dtype, const Dimensions& shape,
           const std::vector<T>& values) {
    std::string sizes;
    for (const std::int64_t d : shape) sizes += (sizes.empty() ? "" : ",") + std::to_string(d);
    const std::size_t begin = data_.size();
    data_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
    header_ += (header_.empty() ? "{\"" : ",\"") + name + "\":{\"dtype\":\"" + dtype +
               "\",\"shape\":[" + sizes + "],\"data_offsets\":[" + std::to_string(begin) + "," +
               std::to_string(data_.size()) + "]}";
  }

  void write(const std::string& path) const {
    std::string header = header_ + "}";
    header.append((8 - header.size() % 8) % 8, ' ');
    const std::uint64_t length = header.size();
    std::string prefix(sizeof length, '\0');
    std::memcpy(prefix.data(), &length, sizeof length);
    test_support::write_text(path, prefix + header + data_);
  }

 private:
  std::string header_, data_;
};

}  // namespace

void write_initial_weights(const std::string& model, const std::string& path, int nudge) {
  SplitMix64 random(seed_of(model)), side(static_cast<std::uint64_t>(1000 + nudge));
  SafetensorsFile file;
  double root = 1;
  for (const Entry& entry : state_dict(model)) {
    const bool norm = entry.shape.size() == 1;
    const auto count = static_cast<std::size_t>(product(entry.shape));
    const auto draw = [&](double center) {
      std::vector<float> values(count);
      for (float& value : values) {
        value = static_cast<float>(center + random.next() / root);
        if (nudge > 0) value = std::nextafter(value, side.next() < 0 ? -INFINITY : INFINITY);
      }
      file.add(entry.name, "F32", entry.shape, values);
    };
    if (entry.name.ends_with(".weight")) {
      root = norm ? 8 : std::sqrt(static_cast<double>(product(entry.shape, 1)));
      draw(norm ? 1 : 0);
    } else if (entry.name.ends_with(".bias")) {  // of the weight before
      draw(0);
    } else if (entry.name.ends_with(".num_batches_tracked")) {
      file.add(entry.name, "I64", {}, std::vector<std::int64_t>{0});
    } else {
      file.add(entry.name, "F32", entry.shape,
               std::vector<float>(count, entry.name.ends_with("running_var") ? 1.0f : 0.0f));
    }
  }
  file.write(path);
}

}  // namespace parity
