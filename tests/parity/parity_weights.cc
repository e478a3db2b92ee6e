// SplitMix64 weights in a safetensors file, written with nothing but the standard library.
#include "tests/parity/parity_weights.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "io/data/split_mix.h"
#include "tests/support/test_support.h"

static_assert(std::endian::native == std::endian::little, "the file format is little-endian");

namespace parity {
namespace {

using Dimensions = std::vector<std::int64_t>;

struct WeightedLayer {
  std::string name;
  Dimensions weight;  // one dimension: BatchNorm
};

std::vector<WeightedLayer> layers_of(const std::string& model) {
  if (model == "mlp") return {{"layers.0", {512, 784}}, {"layers.1", {512, 512}}, {"layers.2", {10, 512}}};
  if (model == "convnet") {
    return {
        {"layer1.0", {16, 1, 5, 5}}, {"layer1.1", {16}}, {"layer2.0", {32, 16, 5, 5}}, {"layer2.1", {32}}, {"fc", {10, 1568}}};
  }
  throw std::runtime_error("no parity weights for model " + model);
}

std::int64_t product(const Dimensions& shape, std::size_t first = 0) {
  return std::accumulate(shape.begin() + static_cast<std::ptrdiff_t>(first), shape.end(), std::int64_t{1}, std::multiplies<>());
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
  void add(const std::string& name, const char* dtype, const Dimensions& shape, const std::vector<T>& values) {
    std::string sizes;
    for (const std::int64_t d : shape) sizes += (sizes.empty() ? "" : ",") + std::to_string(d);
    const std::size_t begin = data_.size();
    data_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
    header_ += (header_.empty() ? "{\"" : ",\"") + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + sizes +
               "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(data_.size()) + "]}";
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

void write_initial_weights(const std::string& model, const std::string& path) {
  SplitMix64 random(model == "mlp" ? 14 : 8);  // as SEEDS in parity_weights.py
  SafetensorsFile file;
  const auto draw = [&](const std::string& name, const Dimensions& shape, double center, double divisor) {
    std::vector<float> values(static_cast<std::size_t>(product(shape)));
    for (float& value : values) value = static_cast<float>(center + random.next() / divisor);
    file.add(name, "F32", shape, values);
  };
  for (const WeightedLayer& layer : layers_of(model)) {
    if (layer.weight.size() == 1) {
      const auto channels = static_cast<std::size_t>(layer.weight[0]);
      draw(layer.name + ".weight", layer.weight, 1, 8);
      draw(layer.name + ".bias", layer.weight, 0, 8);
      file.add(layer.name + ".running_mean", "F32", layer.weight, std::vector<float>(channels, 0.0f));
      file.add(layer.name + ".running_var", "F32", layer.weight, std::vector<float>(channels, 1.0f));
      file.add(layer.name + ".num_batches_tracked", "I64", {}, std::vector<std::int64_t>{0});
    } else {
      const double root = std::sqrt(static_cast<double>(product(layer.weight, 1)));
      draw(layer.name + ".weight", layer.weight, 0, root);
      draw(layer.name + ".bias", {layer.weight[0]}, 0, root);
    }
  }
  file.write(path);
}

}  // namespace parity
