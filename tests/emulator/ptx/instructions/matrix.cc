// mma.sync and wgmma. Source: PTX ISA 9.0, "Warp Level Matrix Instructions" and "Asynchronous
// Warpgroup Level Matrix Instructions"; written with knowledge of the kernels' own helpers, so an
// error of reading may be in both. Products of 16-bit and TF32 numbers are exact as floats; sums
// are rounded one by one.
#include "tests/emulator/ptx/instructions/matrix.h"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "tests/emulator/ptx/machine/warp.h"

namespace ptx {

std::uint16_t to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000u);
  const float size = std::fabs(value);
  if (value != value) return 0x7fff;
  if (size >= 65520.0f) return sign | 0x7c00u;
  // Below 2^-14 halves are multiples of 2^-24; adding 0.5 rounds to them.
  if (size < 0x1p-14f)
    return static_cast<std::uint16_t>(
        sign | (std::bit_cast<std::uint32_t>(size + 0.5f) - std::bit_cast<std::uint32_t>(0.5f)));
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  return static_cast<std::uint16_t>(
      sign | ((magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13));
}

namespace {

struct Halves {
  std::vector<float> of = std::vector<float>(65536);
  Halves() {
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
      const std::uint32_t exponent = bits >> 10 & 31, fraction = bits & 1023;
      const float sign = (bits & 0x8000u) != 0 ? -1.0f : 1.0f;
      of[bits] = exponent == 31  ? (fraction != 0 ? std::numeric_limits<float>::quiet_NaN()
                                                  : sign * std::numeric_limits<float>::infinity())
                 : exponent == 0 ? sign * std::ldexp(static_cast<float>(fraction), -24)
                                 : sign * std::ldexp(static_cast<float>(1024 + fraction),
                                                     static_cast<int>(exponent) - 25);
    }
  }
};
const float* halves() {
  static const Halves table;
  return table.of.data();
}

const std::uint32_t* operand(Warp& w, const Instruction& i, unsigned k) {
  return w.reg<std::uint32_t>(
      k < i.slot.size() ? i.slot[k] : w.block->program->more[i.target + k - i.slot.size()]);
}

template <Element kElement>
float half_of(std::uint32_t both, unsigned which, const float* table) {
  const auto bits = static_cast<std::uint16_t>(both >> (16 * which));
  return kElement == Element::kBf16 ? from_bf16(bits) : table[bits];
}

}  // namespace

float from_f16(std::uint16_t bits) { return halves()[bits]; }

// Slots: D (4 registers), A (4), B (2), C (4). With g = lane / 4 and t = lane % 4, C and D have
// rows g and g + 8 and columns 2 t and 2 t + 1; A's registers are rows g, g + 8, g, g + 8, its
// first two the lower half of k; B's the lower and the upper half of k of column g.
template <Element kElement>
void multiply(Warp& w, const Instruction& i) {
  constexpr unsigned kDepth = kElement == Element::kTf32 ? 8 : 16, kHalf = kDepth / 2,
                     kEach = kDepth / 8;  // numbers a register
  const float* table = halves();
  alignas(32) float a[16][kDepth], b[kDepth][8], c[16][8];
  const auto number = [&](std::uint32_t bits, unsigned which) {
    if constexpr (kElement == Element::kTf32)
      return std::bit_cast<float>(bits & ~0x1fffu);
    else
      return half_of<kElement>(bits, which, table);
  };
  for (unsigned r = 0; r < 4; ++r) {
    const std::uint32_t *from_a = operand(w, i, 4 + r), *from_c = operand(w, i, 10 + r);
    for (unsigned l = 0; l < kLanes; ++l) {
      for (unsigned e = 0; e < kEach; ++e)
        a[l / 4 + r % 2 * 8][r / 2 * kHalf + l % 4 * kEach + e] = number(from_a[l], e);
      c[l / 4 + r / 2 * 8][l % 4 * 2 + r % 2] = std::bit_cast<float>(from_c[l]);
    }
  }
  for (unsigned r = 0; r < 2; ++r) {
    const std::uint32_t* from_b = operand(w, i, 8 + r);
    for (unsigned l = 0; l < kLanes; ++l)
      for (unsigned e = 0; e < kEach; ++e)
        b[r * kHalf + l % 4 * kEach + e][l / 4] = number(from_b[l], e);
  }
  for (unsigned row = 0; row < 16; ++row)
    for (unsigned k = 0; k < kDepth; ++k)
      for (unsigned column = 0; column < 8; ++column) c[row][column] += a[row][k] * b[k][column];
  for (unsigned r = 0; r < 4; ++r)
    each_lane<float>(w, i.slot[r],
                     [&](unsigned l) { return c[l / 4 + r / 2 * 8][l % 4 * 2 + r % 2]; });
}
template void multiply<Element::kTf32>(Warp&, const Instruction&);
template void multiply<Element::kBf16>(Warp&, const Instruction&);
template void multiply<Element::kF16>(Warp&, const Instruction&);

// Slots: D (4), A (2), B (1), C (4), each at the place of the first half of m16n8k16.
void multiply_m16n8k8_f16(Warp& w, const Instruction& i) {
  const float* table = halves();
  float c[16][8];
  for (unsigned r = 0; r < 4; ++r)
    for (unsigned l = 0; l < kLanes; ++l)
      c[l / 4 + r / 2 * 8][l % 4 * 2 + r % 2] = std::bit_cast<float>(operand(w, i, 7 + r)[l]);
  const std::uint32_t* const b = operand(w, i, 6);
  for (unsigned row = 0; row < 16; ++row) {
    const std::uint32_t* const a = operand(w, i, 4 + row / 8);
    for (unsigned k = 0; k < 8; ++k)
      for (unsigned column = 0; column < 8; ++column)
        c[row][column] += half_of<Element::kF16>(a[row % 8 * 4 + k / 2], k % 2, table) *
                          half_of<Element::kF16>(b[column * 4 + k / 2], k % 2, table);
  }
  for (unsigned r = 0; r < 4; ++r)
    each_lane<float>(w, i.slot[r],
                     [&](unsigned l) { return c[l / 4 + r / 2 * 8][l % 4 * 2 + r % 2]; });
}

// Slots: D (8), A (2), B (2), C (8). Lanes 4 q to 4 q + 3 and 4 q + 16 to 4 q + 19 multiply on
// their own; the first four have rows of A and columns of B 0 to 3, the others 4 to 7.
void multiply_m8n8k4_f16(Warp& w, const Instruction& i) {
  const float* table = halves();
  const auto lane_of = [](unsigned q, unsigned line) { return 4 * q + line % 4 + line / 4 * 16; };
  float d[8][kLanes];
  for (unsigned l = 0; l < kLanes; ++l) {
    const unsigned q = l / 4 % 4;
    for (unsigned r = 0; r < 8; ++r) {
      const unsigned row = l % 2 + (r & 2) + l / 16 * 4, column = (r & 4) + (l & 2) + r % 2;
      d[r][l] = std::bit_cast<float>(operand(w, i, 12 + r)[l]);
      for (unsigned k = 0; k < 4; ++k)
        d[r][l] +=
            half_of<Element::kF16>(operand(w, i, 8 + k / 2)[lane_of(q, row)], k % 2, table) *
            half_of<Element::kF16>(operand(w, i, 10 + k / 2)[lane_of(q, column)], k % 2, table);
    }
  }
  for (unsigned r = 0; r < 8; ++r) {
    const std::uint32_t slot =
        r < i.slot.size() ? i.slot[r] : w.block->program->more[i.target + r - i.slot.size()];
    each_lane<float>(w, slot, [&](unsigned l) { return d[r][l]; });
  }
}

// wgmma, m64n128k16 and m64n64k16. Each warp multiplies its 16 rows by itself; what a warpgroup
// has to have in common is compared. A product is computed when it is issued and again when it is
// waited for; in between the accumulators are unreadable (NaN of a kind of its own).
namespace {

constexpr unsigned kDepth = 16, kRows = 16;
constexpr std::uint32_t kUnreadable = 0x7fbadbadu;

// Element (line, k) of an operand whose rows of 128 bytes run along k, or across: along lines.
// Offsets are in units of 16 bytes. A chunk of 16 bytes lies at a place that is exclusive-or'ed
// with the number of its row of 128 bytes, modulo 8.
struct Operand {
  explicit Operand(std::uint64_t descriptor)
      : start(static_cast<std::uint32_t>(descriptor & 0x3fff) * 16),
        leading(static_cast<std::uint32_t>(descriptor >> 16 & 0x3fff) * 16),
        stride(static_cast<std::uint32_t>(descriptor >> 32 & 0x3fff) * 16) {
    if (descriptor >> 62 != 1)
      throw Fault("a wgmma descriptor with another swizzle than of 128 bytes");
    if ((descriptor >> 49 & 7) != 0) throw Fault("a wgmma descriptor with a base offset");
  }
  std::uint32_t place(bool across, unsigned line, unsigned k) const {
    const std::uint32_t straight =
        across ? start + line / 64 * leading + line % 64 * 2 + k / 8 * stride + k % 8 * 128
               : start + line / 8 * stride + line % 8 * 128 + k * 2;
    return straight ^ ((straight >> 7 & 7) << 4);
  }
  std::uint32_t start, leading, stride;
};

template <Element kElement, bool kAcross>
void read_operand(Warp& w, std::uint64_t descriptor, unsigned first_line, unsigned lines,
                  bool first_time, float* to) {
  const Operand operand(descriptor);
  const float* table = halves();
  for (unsigned k = 0; k < kDepth; ++k)
    for (unsigned line = 0; line < lines; ++line) {
      const std::uint32_t offset =
          shared_offset(*w.block, operand.place(kAcross, first_line + line, k), 2);
      // It reads until it is waited for: where it matters who does so when, then once more.
      if (first_time || w.block->history != nullptr) note_read(w, LaneOrder::kWholeWarp, offset, 2);
      if (first_time) check_fenced(*w.block, offset, 2, "wgmma reads");
      std::uint16_t bits;
      std::memcpy(&bits, w.block->shared + offset, 2);
      to[k * lines + line] = kElement == Element::kBf16 ? from_bf16(bits) : table[bits];
    }
}

template <unsigned kColumns>
using Sums = std::array<float, kRows * kColumns>;

template <Element kElement, unsigned kColumns, bool kAcrossA, bool kAcrossB>
Sums<kColumns> product_of(Warp& w, std::uint64_t a, std::uint64_t b, bool first_time) {
  float left[kDepth * kRows], right[kDepth * kColumns];
  read_operand<kElement, kAcrossA>(w, a, w.number % 4 * kRows, kRows, first_time, left);
  read_operand<kElement, kAcrossB>(w, b, 0, kColumns, first_time, right);
  Sums<kColumns> sums{};
  for (unsigned k = 0; k < kDepth; ++k)
    for (unsigned row = 0; row < kRows; ++row)
      for (unsigned column = 0; column < kColumns; ++column)
        sums[row * kColumns + column] += left[k * kRows + row] * right[k * kColumns + column];
  return sums;
}

// Returns the index of register n of lane l in a warp's sums, whose rows have `columns`.
unsigned place_of_sum(unsigned n, unsigned l, unsigned columns) {
  return (l / 4 + n / 2 % 2 * 8) * columns + n / 4 * 8 + l % 4 * 2 + n % 2;
}

std::uint32_t* accumulator(Warp& w, const Instruction& i, unsigned n) {
  return w.reg<std::uint32_t>(w.block->program->more[i.target + n]);
}

std::uint64_t same_in_all(const std::uint64_t* values) {
  for (unsigned l = 1; l < kLanes; ++l)
    if (values[l] != values[0]) throw Fault("a wgmma descriptor that differs between lanes");
  return values[0];
}

// Slots: the two descriptors, and the predicate that says whether to add; the sums are in `more`.
template <Element kElement, unsigned kColumns, bool kAcrossA, bool kAcrossB>
void issue_product(Warp& w, const Instruction& i) {
  const std::uint64_t a = same_in_all(w.reg<std::uint64_t>(i.slot[0])),
                      b = same_in_all(w.reg<std::uint64_t>(i.slot[1]));
  const Mask add = mask_of(w.reg<std::uint8_t>(i.slot[2]));
  if (add != 0 && add != kAllLanes) throw Fault("wgmma adds in some lanes only");
  Block& block = *w.block;
  if ((w.number / 4 + 1) * 4 > block.warps.size())
    throw Fault("wgmma in a warpgroup that is not whole");
  const auto number = static_cast<std::uint32_t>(&i - block.program->code.data());
  auto& issued = block.products[w.number / 4];
  if (issued.size() == w.products_issued) {
    issued.push_back({number, a, b});
  } else {
    const Block::Product& other = issued[w.products_issued];
    if (other.instruction != number || other.a != a || other.b != b)
      throw Fault("the warps of a warpgroup issue different wgmma");
  }
  ++w.products_issued;
  if (w.products.empty()) {
    if (!w.fenced) throw Fault("wgmma without wgmma.fence after its registers were used");
    w.sums.resize(kRows * kColumns);
    for (unsigned n = 0; n < i.more; ++n) {
      std::uint32_t* at = accumulator(w, i, n);
      for (unsigned l = 0; l < kLanes; ++l)
        w.sums[place_of_sum(n, l, kColumns)] = std::bit_cast<float>(at[l]);
      std::fill_n(at, kLanes, kUnreadable);
    }
  } else if (accumulator(w, i, 0) != accumulator(w, *w.products.front().instruction, 0) ||
             i.more != w.products.front().instruction->more) {
    throw Fault("wgmma into other registers while one is under way: not known here");
  }
  constexpr auto kProduct = product_of<kElement, kColumns, kAcrossA, kAcrossB>;
  const Sums<kColumns> now = kProduct(w, a, b, true);
  w.products.push_back({&i,
                        a,
                        b,
                        add != 0,
                        w.product_groups,
                        {now.begin(), now.end()},
                        [](Warp& warp, const PendingProduct& one) {
                          const Sums<kColumns> then = kProduct(warp, one.a, one.b, false);
                          if (std::memcmp(then.data(), one.result.data(), sizeof then) != 0)
                            throw Fault("an operand of wgmma changed while it was read");
                        }});
}

template <Element kElement, unsigned kColumns>
Handler product_handler(bool across_a, bool across_b) {
  if (across_a)
    return across_b ? issue_product<kElement, kColumns, true, true>
                    : issue_product<kElement, kColumns, true, false>;
  return across_b ? issue_product<kElement, kColumns, false, true>
                  : issue_product<kElement, kColumns, false, false>;
}

}  // namespace

// What this warp wrote, and what others did that it knows of.
void fence_proxy(Warp& w, const Instruction&) {
  Block& block = *w.block;
  for (std::size_t c = 0; c < block.unfenced.size(); ++c) {
    const std::uint8_t owner = block.unfenced[c];
    if (owner == 0) continue;
    if (owner == w.number + 1 ||
        (block.history != nullptr &&
         block.history->written_before(
             w.clock, static_cast<std::uint32_t>(16 * c),
             std::min<unsigned>(16, block.shared_bytes - static_cast<unsigned>(16 * c)))))
      block.unfenced[c] = 0;
  }
  for (auto& [offset, barrier] : block.mbarriers)
    if (barrier.made.known_to(w.clock)) barrier.fenced = true;
}

void fence_products(Warp& w, const Instruction&) { w.fenced = true; }
void commit_products(Warp& w, const Instruction&) { ++w.product_groups; }

void wait_products(Warp& w, const Instruction& i) {
  const auto pending = static_cast<std::uint32_t>(i.immediate);
  std::size_t done = 0;
  for (; done < w.products.size(); ++done) {
    const PendingProduct& one = w.products[done];
    if (one.group + pending >= w.product_groups) break;
    one.check(w, one);
    for (std::size_t s = 0; s < w.sums.size(); ++s)
      w.sums[s] = (one.add ? w.sums[s] : 0.0f) + one.result[s];
  }
  if (done == 0) return;
  const Instruction& last = *w.products[done - 1].instruction;
  w.products.erase(w.products.begin(), w.products.begin() + static_cast<std::ptrdiff_t>(done));
  if (!w.products.empty()) return;
  w.fenced = false;
  for (unsigned n = 0; n < last.more; ++n) {
    std::uint32_t* at = accumulator(w, last, n);
    for (unsigned l = 0; l < kLanes; ++l) {
      if (at[l] != kUnreadable)
        throw Fault("a register of wgmma was written before it was waited for");
      at[l] = std::bit_cast<std::uint32_t>(w.sums[place_of_sum(n, l, 2 * last.more)]);
    }
  }
}

Handler warpgroup_product_of(std::string_view opcode, std::size_t sums, bool across_a,
                             bool across_b) {
  constexpr std::string_view kStart = "wgmma.mma_async.sync.aligned.m64n";
  if (!opcode.starts_with(kStart)) return nullptr;
  const std::string_view rest = opcode.substr(kStart.size());
  if (rest == "128k16.f32.bf16.bf16" && sums == 64)
    return product_handler<Element::kBf16, 128>(across_a, across_b);
  if (rest == "128k16.f32.f16.f16" && sums == 64)
    return product_handler<Element::kF16, 128>(across_a, across_b);
  if (rest == "64k16.f32.bf16.bf16" && sums == 32)
    return product_handler<Element::kBf16, 64>(across_a, across_b);
  if (rest == "64k16.f32.f16.f16" && sums == 32)
    return product_handler<Element::kF16, 64>(across_a, across_b);
  return nullptr;
}

}  // namespace ptx
