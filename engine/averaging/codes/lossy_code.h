// Codes slices of flat buffers in fewer bits, block by block. Every rank decodes the same bytes to
// the same bits.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "engine/core/error.h"
#include "engine/ops/codes/quantized_block.h"
#include "engine/ops/codes/sparse_block.h"
#include "io/base/numbers/half.h"

namespace engine {

struct LossyOptions {
  enum class Kind { kQuantized, kSparse };
  Kind kind = Kind::kQuantized;
  int bits = 8;             // per value: 8 or 4; sparse: 8, 4 or 2
  double ratio = 0.02;      // sparse: the fraction (0, 1] of elements that is sent
  std::int64_t warmup = 0;  // sparse: the number of first rounds that send more than `ratio`
  double decay = 1;         // factor on what earlier rounds did not send
  double momentum = 0;      // sparse gradients: momentum of each rank before the selection
  std::uint64_t seed = 0;   // quantized: of the stochastic rounding
};

// A block is a scale (bf16) and an integer of `bits` bits for each element, by stochastic rounding:
// the expected value of a decoded element is the element, and it differs by less than the scale,
// the largest magnitude of the block over 127 or 7. A block with an element that is not finite
// decodes to NaN.
class QuantizedCode {
 public:
  static constexpr std::int64_t kBlock = ops::kQuantizedBlock;
  static constexpr bool kHoldsSums = true;  // a sum of contributions is coded as well as one

  explicit QuantizedCode(int bits) : bits_(bits) {
    require(bits == 8 || bits == 4, "quantized elements have 8 or 4 bits");
  }
  std::size_t block_bytes(std::int64_t count) const { return ops::quantized_bytes(bits_, count); }
  int bits() const { return bits_; }
  // `first` is the position of the block's first element in the whole buffer.
  template <class T>
  void encode(std::span<const T> block, const RoundingNoise& noise, std::int64_t first,
              std::byte* to) const;
  // Adds factor * (the decoded block).
  template <class T>
  void add(const std::byte* from, T factor, std::span<T> to) const;
  // Throws Error for a code that no encode() makes.
  void check(const std::byte* /*from*/, std::int64_t /*count*/) const {}
  // Sets the elements of `to` to zero that the code contains: all of them.
  template <class T>
  void clear_sent(const std::byte* /*from*/, std::span<T> to) const {
    std::fill(to.begin(), to.end(), T(0));
  }

 private:
  int bits_;
};

// A block contains its `kept` largest elements in magnitude, each as an index of 12 bits, a sign
// and a level. Levels are evenly spaced magnitudes, base + level * step (two bf16), fitted to the
// elements by least squares. A block with an element that is not finite sends NaN for all it sends.
class SparseCode {
 public:
  static constexpr std::int64_t kBlock = ops::kSparseBlock;
  static constexpr bool kHoldsSums = false;
  static constexpr int kIndexBits = ops::kSparseIndexBits;

  // `kept` elements of a whole block, and in proportion of a shorter one.
  SparseCode(int bits, std::int64_t kept) : bits_(bits), kept_(kept) {
    require(bits == 8 || bits == 4 || bits == 2, "sparse values have 8, 4 or 2 bits");
    require(kept >= 1 && kept <= kBlock, "a block sends between one and all of its elements");
  }
  std::int64_t kept_of(std::int64_t count) const { return ops::sparse_kept(kept_, count); }
  std::size_t block_bytes(std::int64_t count) const {
    return ops::sparse_bytes(bits_, kept_, count);
  }
  int bits() const { return bits_; }
  std::int64_t kept() const { return kept_; }
  template <class T>
  void encode(std::span<const T> block, const RoundingNoise& noise, std::int64_t first,
              std::byte* to) const;
  template <class T>
  void add(const std::byte* from, T factor, std::span<T> to) const;
  // An index can be outside its block only if the block is shorter than kBlock.
  void check(const std::byte* from, std::int64_t count) const;
  template <class T>
  void clear_sent(const std::byte* from, std::span<T> to) const;

 private:
  int bits_;
  std::int64_t kept_;
};

using LossyCode = std::variant<QuantizedCode, SparseCode>;

// The code of a round. All ranks get the same one: it is computed from integers. In the warm-up,
// the ratio is 1/4, then 1/16, 1/64 and so on, for equal numbers of rounds, as far as these are
// above `ratio` (Lin et al., 2017: deep gradient compression).
LossyCode code_of_round(const LossyOptions& options, std::int64_t round);

// The bytes of a code of `count` elements, block after block.
template <class Code>
std::size_t code_bytes(const Code& code, std::int64_t count) {
  const std::int64_t blocks = count / Code::kBlock, rest = count % Code::kBlock;
  return static_cast<std::size_t>(blocks) * code.block_bytes(Code::kBlock) +
         (rest > 0 ? code.block_bytes(rest) : 0);
}
std::size_t code_bytes(const LossyOptions& options, std::int64_t count, std::int64_t round);

// Returns "int8", "int4", "sparse 0.02, 2 bits" or "sparse 0.02, 2 bits, momentum 0.9".
std::string lossy_text(const LossyOptions& options);

}  // namespace engine
