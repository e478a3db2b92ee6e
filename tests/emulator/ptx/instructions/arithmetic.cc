// Instructions from registers to registers. Source: PTX ISA 9.0, chapter "Instruction Set".
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <unordered_map>

#include "tests/emulator/ptx/instructions/matrix.h"
#include "tests/emulator/ptx/machine/warp.h"

namespace ptx {
namespace {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using s16 = std::int16_t;
using s32 = std::int32_t;
using s64 = std::int64_t;
using f32 = float;
using f64 = double;

template <class T>
using Unsigned = std::make_unsigned_t<T>;

// Functions of one, two and three operands, as instructions. A is the type of operands, R of
// results.
template <class R, class A, auto kFunction>
void unary(Warp& w, const Instruction& i) {
  const A* a = w.reg<A>(i.slot[1]);
  each_lane<R>(w, i.slot[0], [&](unsigned l) { return static_cast<R>(kFunction(a[l])); });
}
template <class R, class A, auto kFunction, class B = A>
void binary(Warp& w, const Instruction& i) {
  const A* a = w.reg<A>(i.slot[1]);
  const B* b = w.reg<B>(i.slot[2]);
  each_lane<R>(w, i.slot[0], [&](unsigned l) { return static_cast<R>(kFunction(a[l], b[l])); });
}
template <class R, class A, auto kFunction, class B = A, class C = A>
void ternary(Warp& w, const Instruction& i) {
  const A* a = w.reg<A>(i.slot[1]);
  const B* b = w.reg<B>(i.slot[2]);
  const C* c = w.reg<C>(i.slot[3]);
  each_lane<R>(w, i.slot[0],
               [&](unsigned l) { return static_cast<R>(kFunction(a[l], b[l], c[l])); });
}

// The lowest bits of the first operand take the place of some of the second.
template <class T>
void insert_bits(Warp& w, const Instruction& i) {
  constexpr unsigned kBits = 8 * sizeof(T);
  const T *from = w.reg<T>(i.slot[1]), *into = w.reg<T>(i.slot[2]);
  const u32 *place = w.reg<u32>(i.slot[3]), *length = w.reg<u32>(i.slot[4]);
  each_lane<T>(w, i.slot[0], [&](unsigned l) {
    const unsigned at = place[l] & 255, bits = std::min(length[l] & 255, kBits);
    if (at >= kBits || bits == 0) return into[l];
    const T mask = static_cast<T>(static_cast<T>(-1) >> (kBits - bits) << at);
    return static_cast<T>((into[l] & ~mask) | (from[l] << at & mask));
  });
}

// Integers wrap around.
constexpr auto add = [](auto a, auto b) {
  if constexpr (std::is_integral_v<decltype(a)>)
    return static_cast<Unsigned<decltype(a)>>(static_cast<Unsigned<decltype(a)>>(a) +
                                              static_cast<Unsigned<decltype(b)>>(b));
  else
    return a + b;
};
constexpr auto sub = [](auto a, auto b) {
  if constexpr (std::is_integral_v<decltype(a)>)
    return static_cast<Unsigned<decltype(a)>>(static_cast<Unsigned<decltype(a)>>(a) -
                                              static_cast<Unsigned<decltype(b)>>(b));
  else
    return a - b;
};
constexpr auto mul = [](auto a, auto b) {
  if constexpr (std::is_integral_v<decltype(a)>)
    return static_cast<Unsigned<decltype(a)>>(u64{static_cast<Unsigned<decltype(a)>>(a)} *
                                              u64{static_cast<Unsigned<decltype(b)>>(b)});
  else
    return a * b;
};
// Rounds toward zero: the nearest sum, or the number before it if that is beyond the exact sum. The
// error of the nearest sum is a float as well (Knuth's two-sum).
constexpr auto add_toward_zero = [](f32 a, f32 b) {
  const f32 sum = a + b;
  if (!std::isfinite(a) || !std::isfinite(b)) return sum;
  if (!std::isfinite(sum)) return std::copysign(std::numeric_limits<f32>::max(), sum);
  const f32 part = sum - a, error = (a - (sum - part)) + (b - part);
  const bool is_beyond = error != 0 && std::signbit(error) != std::signbit(sum);
  return is_beyond ? std::nextafter(sum, f32{0}) : sum;
};
constexpr auto mad = [](auto a, auto b, auto c) { return add(mul(a, b), c); };
constexpr auto wide_s32 = [](s32 a, s32 b) { return s64{a} * s64{b}; };
constexpr auto wide_u32 = [](u32 a, u32 b) { return u64{a} * u64{b}; };
constexpr auto wide_add_s32 = [](s32 a, s32 b, u64 c) {
  return static_cast<u64>(s64{a} * s64{b}) + c;
};
constexpr auto wide_add_u32 = [](u32 a, u32 b, u64 c) { return u64{a} * u64{b} + c; };
constexpr auto high_u32 = [](u32 a, u32 b) { return static_cast<u32>(u64{a} * u64{b} >> 32); };
constexpr auto high_s32 = [](s32 a, s32 b) { return static_cast<s32>(s64{a} * s64{b} >> 32); };
// A device's result of a division by zero is not specified: here all ones. Lanes that do not take
// part are computed, too.
constexpr auto divide = [](auto a, auto b) {
  using T = decltype(a);
  if (b == 0) return static_cast<T>(-1);
  if constexpr (std::is_signed_v<T>)
    if (b == -1) return static_cast<T>(-static_cast<Unsigned<T>>(a));
  return static_cast<T>(a / b);
};
constexpr auto remainder_of = [](auto a, auto b) {
  using T = decltype(a);
  if (b == 0) return static_cast<T>(-1);
  if constexpr (std::is_signed_v<T>)
    if (b == -1) return T{0};
  return static_cast<T>(a % b);
};
constexpr auto divide_float = [](auto a, auto b) { return a / b; };
constexpr auto smaller = [](auto a, auto b) {
  if constexpr (std::is_integral_v<decltype(a)>)
    return std::min(a, b);
  else
    return std::fmin(a, b);
};
constexpr auto larger = [](auto a, auto b) {
  if constexpr (std::is_integral_v<decltype(a)>)
    return std::max(a, b);
  else
    return std::fmax(a, b);
};
constexpr auto negate = [](auto a) {
  if constexpr (std::is_integral_v<decltype(a)>)
    return static_cast<Unsigned<decltype(a)>>(0 - static_cast<Unsigned<decltype(a)>>(a));
  else
    return -a;
};
constexpr auto magnitude = [](auto a) {
  if constexpr (std::is_integral_v<decltype(a)>)
    return a < 0 ? static_cast<Unsigned<decltype(a)>>(0 - static_cast<Unsigned<decltype(a)>>(a))
                 : static_cast<Unsigned<decltype(a)>>(a);
  else
    return std::fabs(a);
};
constexpr auto bits_and = [](auto a, auto b) { return a & b; };
constexpr auto bits_or = [](auto a, auto b) { return a | b; };
constexpr auto bits_xor = [](auto a, auto b) { return a ^ b; };
constexpr auto bits_not = [](auto a) { return ~a; };
constexpr auto truth_not = [](u8 a) { return a ^ 1; };
// Shifts by the width or more leave zeros, or the sign.
constexpr auto shift_left = [](auto a, u32 by) {
  using T = decltype(a);
  return by < 8 * sizeof(T) ? static_cast<T>(a << by) : T{0};
};
constexpr auto shift_right = [](auto a, u32 by) {
  using T = decltype(a);
  constexpr u32 kWidth = 8 * sizeof(T);
  if constexpr (std::is_signed_v<T>)
    return static_cast<T>(a >> std::min(by, kWidth - 1));
  else
    return by < kWidth ? static_cast<T>(a >> by) : T{0};
};
constexpr auto choose = [](auto a, auto b, u8 p) { return p != 0 ? a : b; };

// The two first operands' eight bytes, from the lowest on; each nibble of the third chooses one, or
// its sign.
// bfe: `length` bits from `place` on, those beyond the last one by its sign.
constexpr auto extract_bits = [](auto from, u32 place, u32 length) {
  using T = decltype(from);
  constexpr unsigned kBits = 8 * sizeof(T);
  const unsigned at = place & 255, bits = length & 255;
  if (bits == 0) return T{0};
  const unsigned last = std::min(at + bits, kBits) - 1;
  const bool negative = std::is_signed_v<T> && (from >> last & 1) != 0;
  if (at >= kBits) return static_cast<T>(negative ? -1 : 0);
  const auto mask =
      static_cast<Unsigned<T>>(static_cast<Unsigned<T>>(-1) >> (kBits - 1 - (last - at)));
  const auto taken = static_cast<Unsigned<T>>(static_cast<Unsigned<T>>(from) >> at & mask);
  return static_cast<T>(negative ? taken | static_cast<Unsigned<T>>(~mask) : taken);
};
constexpr auto permute = [](u32 a, u32 b, u32 how) {
  const u64 both = u64{b} << 32 | a;
  u32 result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const u32 selector = how >> (4 * i) & 15;
    u32 byte = static_cast<u32>(both >> (8 * (selector & 7))) & 255;
    if ((selector & 8) != 0) byte = (byte & 128) != 0 ? 255 : 0;
    result |= byte << (8 * i);
  }
  return result;
};

// Comparisons. The ones with u are also true where an operand is NaN.
constexpr auto eq = [](auto a, auto b) { return a == b; };
constexpr auto ne = [](auto a, auto b) {
  if constexpr (std::is_floating_point_v<decltype(a)>)
    return a < b || a > b;
  else
    return a != b;
};
constexpr auto lt = [](auto a, auto b) { return a < b; };
constexpr auto le = [](auto a, auto b) { return a <= b; };
constexpr auto gt = [](auto a, auto b) { return a > b; };
constexpr auto ge = [](auto a, auto b) { return a >= b; };
constexpr auto equ = [](auto a, auto b) { return !(a < b || a > b); };
constexpr auto neu = [](auto a, auto b) { return !(a == b); };
constexpr auto ltu = [](auto a, auto b) { return !(a >= b); };
constexpr auto leu = [](auto a, auto b) { return !(a > b); };
constexpr auto gtu = [](auto a, auto b) { return !(a <= b); };
constexpr auto geu = [](auto a, auto b) { return !(a < b); };
constexpr auto num = [](auto a, auto b) { return a == a && b == b; };
constexpr auto nan = [](auto a, auto b) { return a != a || b != b; };

// Floating point.
constexpr auto fused = [](auto a, auto b, auto c) { return std::fma(a, b, c); };
// a b + c rounded downwards. The product of two floats is exact as a double; what the sum rounds
// off is known exactly, too (Knuth's two-sum).
constexpr auto fused_down = [](f32 a, f32 b, f32 c) {
  const f64 product = f64{a} * f64{b}, sum = product + f64{c};
  const f32 rounded = static_cast<f32>(sum);
  if (!std::isfinite(sum)) return rounded;
  const f64 back = sum - product, lost = (product - (sum - back)) + (f64{c} - back);
  if (f64{rounded} > sum || (f64{rounded} == sum && lost < 0))
    return std::nextafter(rounded, -std::numeric_limits<f32>::infinity());
  return rounded;
};
constexpr auto flush = [](f32 a) {  // .ftz
  return std::fabs(a) < std::numeric_limits<f32>::min() ? std::copysign(0.0f, a) : a;
};
// A device's approximations are off by some units in the last place; here they are exact to one.
constexpr auto exp2_of = [](f32 a) { return std::exp2(a); };
constexpr auto exp2_flushed = [](f32 a) { return flush(std::exp2(flush(a))); };
constexpr auto log2_of = [](f32 a) { return std::log2(a); };
constexpr auto reciprocal = [](auto a) { return decltype(a){1} / a; };
constexpr auto reciprocal_flushed = [](f32 a) { return flush(1 / flush(a)); };
// Reads and writes the upper half of the number alone.
constexpr auto reciprocal_upper = [](f64 a) {
  const u64 upper = std::bit_cast<u64>(a) & 0xffffffff00000000u;
  return std::bit_cast<f64>(std::bit_cast<u64>(1 / std::bit_cast<f64>(upper)) &
                            0xffffffff00000000u);
};
constexpr auto root = [](auto a) { return std::sqrt(a); };
constexpr auto reciprocal_root = [](f32 a) { return static_cast<f32>(1 / std::sqrt(f64{a})); };
constexpr auto tanh_of = [](f32 a) { return std::tanh(a); };
constexpr auto sine = [](f32 a) { return std::sin(a); };
constexpr auto cosine = [](f32 a) { return std::cos(a); };
constexpr auto with_sign = [](auto a, auto b) { return std::copysign(b, a); };

// Conversions.
template <class R>
constexpr auto to_type = [](auto a) { return static_cast<R>(a); };
constexpr auto saturate = [](f32 a) { return a > 0 ? std::min(a, 1.0f) : 0.0f; };  // NaN is 0
constexpr auto round_down = [](auto a) { return std::floor(a); };
constexpr auto truncate = [](auto a) { return std::trunc(a); };
constexpr auto round_to_even = [](auto a) { return std::nearbyint(a); };
// Integers of floats: what does not fit is the nearest that does, NaN is 0.
template <class R, bool kNearest>
constexpr auto to_integer = [](auto a) {
  const auto whole = kNearest ? std::nearbyint(a) : std::trunc(a);
  if (whole != whole) return R{0};
  if (whole < static_cast<decltype(a)>(std::numeric_limits<R>::min()))
    return std::numeric_limits<R>::min();
  if (whole >= std::ldexp(static_cast<decltype(a)>(1),
                          static_cast<int>(8 * sizeof(R)) - (std::is_signed_v<R> ? 1 : 0)))
    return std::numeric_limits<R>::max();
  return static_cast<R>(whole);
};
constexpr auto tf32_of = [](u32 bits) {  // to nearest, ties away from zero
  return (bits & 0x7f800000u) == 0x7f800000u ? bits : (bits + 0x1000u) & ~0x1fffu;
};
constexpr auto bf16_of = [](f32 a) { return to_bf16(a); };
constexpr auto f16_of = [](f32 a) { return to_f16(a); };
constexpr auto of_f16 = [](u16 a) { return from_f16(a); };
constexpr auto of_bf16 = [](u16 a) { return from_bf16(a); };
constexpr auto two_bf16 = [](f32 high, f32 low) {
  return u32{to_bf16(high)} << 16 | u32{to_bf16(low)};
};
constexpr auto two_f16 = [](f32 high, f32 low) {
  return u32{to_f16(high)} << 16 | u32{to_f16(low)};
};

// Between lanes. The second result, whether the source was within range, is always true in the
// forms that are known here: the whole warp, sources within it.
template <bool kXor>
void shuffle(Warp& w, const Instruction& i) {
  const u32* value = w.reg<u32>(i.slot[2]);
  const u32* lane = w.reg<u32>(i.slot[3]);
  const u32* clamp = w.reg<u32>(i.slot[4]);
  u32 result[kLanes];
  for (unsigned l = 0; l < kLanes; ++l) {
    if ((w.mask >> l & 1) == 0) continue;
    if (clamp[l] != 31) throw Fault("a shuffle within a part of the warp");
    const u32 from = kXor ? l ^ (lane[l] & 31) : lane[l] & 31;
    if ((w.mask >> from & 1) == 0) throw Fault("a shuffle reads from a lane that takes no part");
    result[l] = value[from];
  }
  for (unsigned l = 0; l < kLanes; ++l)
    if ((w.mask >> l & 1) != 0) w.reg<u32>(i.slot[0])[l] = result[l];
  each_lane<u8>(w, i.slot[1], [](unsigned) { return u8{1}; });
}

void nothing(Warp&, const Instruction&) {}
void order_lanes(Warp& w, const Instruction&) { w.block->lanes->order_warp(w.number); }
[[noreturn]] void trap(Warp&, const Instruction&) { throw Fault("trap"); }

using Forms = std::unordered_map<std::string_view, Form>;

Forms make_forms() {
  Forms f;
#define BINARY(name, type, letters, function) \
  f[name "." #type] = {binary<type, type, function>, letters}
#define INTEGERS(MACRO) \
  MACRO(u16, "h=hh");   \
  MACRO(s16, "h=hh");   \
  MACRO(u32, "w=ww");   \
  MACRO(s32, "w=ww");   \
  MACRO(u64, "d=dd");   \
  MACRO(s64, "d=dd")
#define OF_INTEGERS(type, letters)            \
  BINARY("add", type, letters, add);          \
  BINARY("sub", type, letters, sub);          \
  BINARY("mul.lo", type, letters, mul);       \
  BINARY("div", type, letters, divide);       \
  BINARY("rem", type, letters, remainder_of); \
  BINARY("min", type, letters, smaller);      \
  BINARY("max", type, letters, larger)
  INTEGERS(OF_INTEGERS);
#define COMPARE(test, type, letters) f["setp." #test "." #type] = {binary<u8, type, test>, letters}
#define COMPARE_ORDER(type, letters) \
  COMPARE(eq, type, letters);        \
  COMPARE(ne, type, letters);        \
  COMPARE(lt, type, letters);        \
  COMPARE(le, type, letters);        \
  COMPARE(gt, type, letters);        \
  COMPARE(ge, type, letters)
  COMPARE_ORDER(u16, "p=hh");
  COMPARE_ORDER(s16, "p=hh");
  COMPARE_ORDER(u32, "p=ww");
  COMPARE_ORDER(s32, "p=ww");
  COMPARE_ORDER(u64, "p=dd");
  COMPARE_ORDER(s64, "p=dd");
  f["setp.eq.b16"] = f["setp.eq.u16"];
  f["setp.ne.b16"] = f["setp.ne.u16"];
  f["setp.eq.b32"] = f["setp.eq.u32"];
  f["setp.ne.b32"] = f["setp.ne.u32"];
  f["setp.eq.b64"] = f["setp.eq.u64"];
  f["setp.ne.b64"] = f["setp.ne.u64"];
#define OF_FLOATS(type, letter, three)                                                \
  COMPARE_ORDER(type, "p=" letter letter);                                            \
  COMPARE(equ, type, "p=" letter letter);                                             \
  COMPARE(neu, type, "p=" letter letter);                                             \
  COMPARE(ltu, type, "p=" letter letter);                                             \
  COMPARE(leu, type, "p=" letter letter);                                             \
  COMPARE(gtu, type, "p=" letter letter);                                             \
  COMPARE(geu, type, "p=" letter letter);                                             \
  COMPARE(num, type, "p=" letter letter);                                             \
  COMPARE(nan, type, "p=" letter letter);                                             \
  BINARY("add", type, letter "=" letter letter, add);                                 \
  BINARY("sub", type, letter "=" letter letter, sub);                                 \
  BINARY("mul", type, letter "=" letter letter, mul);                                 \
  BINARY("add.rn", type, letter "=" letter letter, add);                              \
  BINARY("sub.rn", type, letter "=" letter letter, sub);                              \
  BINARY("mul.rn", type, letter "=" letter letter, mul);                              \
  BINARY("div.rn", type, letter "=" letter letter, divide_float);                     \
  BINARY("min", type, letter "=" letter letter, smaller);                             \
  BINARY("max", type, letter "=" letter letter, larger);                              \
  BINARY("copysign", type, letter "=" letter letter, with_sign);                      \
  f["fma.rn." #type] = {ternary<type, type, fused>, letter "=" letter letter letter}; \
  f["neg." #type] = {unary<type, type, negate>, letter "=" letter};                   \
  f["abs." #type] = {unary<type, type, magnitude>, letter "=" letter};                \
  f["rcp.rn." #type] = {unary<type, type, reciprocal>, letter "=" letter};            \
  f["sqrt.rn." #type] = {unary<type, type, root>, letter "=" letter};                 \
  f["selp." #type] = {ternary<type, type, choose, type, u8>, letter "=" letter letter "p"}
  OF_FLOATS(f32, "w", );
  OF_FLOATS(f64, "d", );

  BINARY("add.rz", f32, "w=ww", add_toward_zero);
  f["neg.s16"] = {unary<u16, s16, negate>, "h=h"};
  f["neg.s32"] = {unary<u32, s32, negate>, "w=w"};
  f["neg.s64"] = {unary<u64, s64, negate>, "d=d"};
  f["abs.s32"] = {unary<u32, s32, magnitude>, "w=w"};
  f["abs.s64"] = {unary<u64, s64, magnitude>, "d=d"};
  f["mad.lo.s32"] = f["mad.lo.u32"] = {ternary<u32, u32, mad>, "w=www"};
  f["mad.lo.s64"] = f["mad.lo.u64"] = {ternary<u64, u64, mad>, "d=ddd"};
  f["mul.wide.s32"] = {binary<s64, s32, wide_s32>, "d=ww"};
  f["mul.wide.u32"] = {binary<u64, u32, wide_u32>, "d=ww"};
  f["mad.wide.s32"] = {ternary<u64, s32, wide_add_s32, s32, u64>, "d=wwd"};
  f["mad.wide.u32"] = {ternary<u64, u32, wide_add_u32, u32, u64>, "d=wwd"};
  f["mul.hi.u32"] = {binary<u32, u32, high_u32>, "w=ww"};
  f["mul.hi.s32"] = {binary<s32, s32, high_s32>, "w=ww"};

#define LOGIC(name, function)                            \
  f[name ".b16"] = {binary<u16, u16, function>, "h=hh"}; \
  f[name ".b32"] = {binary<u32, u32, function>, "w=ww"}; \
  f[name ".b64"] = {binary<u64, u64, function>, "d=dd"}; \
  f[name ".pred"] = {binary<u8, u8, function>, "p=pp"}
  LOGIC("and", bits_and);
  LOGIC("or", bits_or);
  LOGIC("xor", bits_xor);
  f["not.b16"] = {unary<u16, u16, bits_not>, "h=h"};
  f["not.b32"] = {unary<u32, u32, bits_not>, "w=w"};
  f["not.b64"] = {unary<u64, u64, bits_not>, "d=d"};
  f["not.pred"] = {unary<u8, u8, truth_not>, "p=p"};
  f["shl.b16"] = {binary<u16, u16, shift_left, u32>, "h=hw"};
  f["shl.b32"] = {binary<u32, u32, shift_left, u32>, "w=ww"};
  f["shl.b64"] = {binary<u64, u64, shift_left, u32>, "d=dw"};
  f["shr.u16"] = {binary<u16, u16, shift_right, u32>, "h=hw"};
  f["shr.s16"] = {binary<s16, s16, shift_right, u32>, "h=hw"};
  f["shr.u32"] = f["shr.b32"] = {binary<u32, u32, shift_right, u32>, "w=ww"};
  f["shr.s32"] = {binary<s32, s32, shift_right, u32>, "w=ww"};
  f["shr.u64"] = f["shr.b64"] = {binary<u64, u64, shift_right, u32>, "d=dw"};
  f["shr.s64"] = {binary<s64, s64, shift_right, u32>, "d=dw"};
  f["selp.b16"] = f["selp.u16"] = f["selp.s16"] = {ternary<u16, u16, choose, u16, u8>, "h=hhp"};
  f["selp.b32"] = f["selp.u32"] = f["selp.s32"] = {ternary<u32, u32, choose, u32, u8>, "w=wwp"};
  f["selp.b64"] = f["selp.u64"] = f["selp.s64"] = {ternary<u64, u64, choose, u64, u8>, "d=ddp"};
  f["prmt.b32"] = {ternary<u32, u32, permute>, "w=www"};
  f["bfi.b32"] = {insert_bits<u32>, "w=wwww"};
  f["bfi.b64"] = {insert_bits<u64>, "d=ddww"};
  f["bfe.u32"] = {ternary<u32, u32, extract_bits>, "w=www"};
  f["bfe.s32"] = {ternary<s32, s32, extract_bits, u32, u32>, "w=www"};
  f["bfe.u64"] = {ternary<u64, u64, extract_bits, u32, u32>, "d=dww"};
  f["bfe.s64"] = {ternary<s64, s64, extract_bits, u32, u32>, "d=dww"};

  f["fma.rm.f32"] = {ternary<f32, f32, fused_down>, "w=www"};
  f["div.approx.f32"] = f["div.full.f32"] = f["div.rn.f32"];
  f["ex2.approx.f32"] = {unary<f32, f32, exp2_of>, "w=w"};
  f["ex2.approx.ftz.f32"] = {unary<f32, f32, exp2_flushed>, "w=w"};
  f["lg2.approx.f32"] = {unary<f32, f32, log2_of>, "w=w"};
  f["rcp.approx.ftz.f32"] = {unary<f32, f32, reciprocal_flushed>, "w=w"};
  f["rcp.approx.ftz.f64"] = {unary<f64, f64, reciprocal_upper>, "d=d"};
  f["rsqrt.approx.f32"] = {unary<f32, f32, reciprocal_root>, "w=w"};
  f["tanh.approx.f32"] = {unary<f32, f32, tanh_of>, "w=w"};
  f["sin.approx.f32"] = {unary<f32, f32, sine>, "w=w"};
  f["cos.approx.f32"] = {unary<f32, f32, cosine>, "w=w"};

  f["cvt.f64.f32"] = {unary<f64, f32, to_type<f64>>, "d=w"};
  f["cvt.rn.f32.f64"] = {unary<f32, f64, to_type<f32>>, "w=d"};
  f["cvt.rn.f32.s32"] = {unary<f32, s32, to_type<f32>>, "w=w"};
  f["cvt.rn.f32.u32"] = {unary<f32, u32, to_type<f32>>, "w=w"};
  f["cvt.rn.f32.s16"] = {unary<f32, s16, to_type<f32>>, "w=h"};
  f["cvt.rn.f64.s16"] = {unary<f64, s16, to_type<f64>>, "d=h"};
  f["cvt.rn.f32.s64"] = {unary<f32, s64, to_type<f32>>, "w=d"};
  f["cvt.rn.f32.u64"] = {unary<f32, u64, to_type<f32>>, "w=d"};
  f["cvt.rn.f64.s64"] = {unary<f64, s64, to_type<f64>>, "d=d"};
  f["cvt.rn.f64.u64"] = {unary<f64, u64, to_type<f64>>, "d=d"};
  f["cvt.rn.f64.s32"] = {unary<f64, s32, to_type<f64>>, "d=w"};
  f["cvt.rn.f64.u32"] = {unary<f64, u32, to_type<f64>>, "d=w"};
  f["cvt.sat.f32.f32"] = {unary<f32, f32, saturate>, "w=w"};
  f["cvt.rzi.f32.f32"] = {unary<f32, f32, truncate>, "w=w"};
  f["cvt.rzi.f64.f64"] = {unary<f64, f64, truncate>, "d=d"};
  f["cvt.rmi.f32.f32"] = {unary<f32, f32, round_down>, "w=w"};
  f["cvt.rmi.f64.f64"] = {unary<f64, f64, round_down>, "d=d"};
  f["cvt.rni.f32.f32"] = {unary<f32, f32, round_to_even>, "w=w"};
  f["cvt.rni.f64.f64"] = {unary<f64, f64, round_to_even>, "d=d"};
  f["cvt.rzi.s32.f32"] = {unary<s32, f32, to_integer<s32, false>>, "w=w"};
  f["cvt.rni.s32.f32"] = {unary<s32, f32, to_integer<s32, true>>, "w=w"};
  f["cvt.rzi.u32.f32"] = {unary<u32, f32, to_integer<u32, false>>, "w=w"};
  f["cvt.rzi.s64.f32"] = {unary<s64, f32, to_integer<s64, false>>, "d=w"};
  f["cvt.rzi.s64.f64"] = {unary<s64, f64, to_integer<s64, false>>, "d=d"};
  f["cvt.rzi.s32.f64"] = {unary<s32, f64, to_integer<s32, false>>, "w=d"};
  f["cvt.rna.tf32.f32"] = {unary<u32, u32, tf32_of>, "w=w"};
  f["cvt.rn.bf16.f32"] = {unary<u16, f32, bf16_of>, "h=w"};
  f["cvt.rn.f16.f32"] = {unary<u16, f32, f16_of>, "h=w"};
  f["cvt.f32.f16"] = {unary<f32, u16, of_f16>, "w=h"};
  f["cvt.f32.bf16"] = {unary<f32, u16, of_bf16>, "w=h"};
  f["cvt.rn.bf16x2.f32"] = {binary<u32, f32, two_bf16>, "w=ww"};
  f["cvt.rn.f16x2.f32"] = {binary<u32, f32, two_f16>, "w=ww"};

  // Global memory has one address, generic or not. That of shared memory is never made generic.
  f["cvta.to.global.u64"] = f["cvta.global.u64"] = f["cvta.param.u64"] = {copy_of(8), "d=d"};

  f["shfl.sync.bfly.b32"] = {shuffle<true>, "wp=wwwm", Kind::kMemberMask};
  f["shfl.sync.idx.b32"] = {shuffle<false>, "wp=wwwm", Kind::kMemberMask};
  f["bar.warp.sync"] = {order_lanes, "=m", Kind::kMemberMask};
  f["trap"] = {trap, "="};
  f["ret"] = f["exit"] = {nothing, "=", Kind::kExit};
  f["cp.async.commit_group"] = {commit_copies, "="};
  f["cp.async.wait_group"] = {wait_copies, "=n"};
  f["ldmatrix.sync.aligned.m8n8.x4.shared.b16"] = {load_matrices<4, false>, "wwww=a",
                                                   Kind::kWholeWarp};
  f["ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"] = {load_matrices<4, true>, "wwww=a",
                                                         Kind::kWholeWarp};
  f["ldmatrix.sync.aligned.m8n8.x2.shared.b16"] = {load_matrices<2, false>, "ww=a",
                                                   Kind::kWholeWarp};
  f["ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16"] = {load_matrices<2, true>, "ww=a",
                                                         Kind::kWholeWarp};
  f["mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"] = {multiply<Element::kTf32>,
                                                             "wwww=wwwwwwwwww", Kind::kWholeWarp};
  f["mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"] = {multiply<Element::kBf16>,
                                                              "wwww=wwwwwwwwww", Kind::kWholeWarp};
  f["mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"] = {multiply<Element::kF16>,
                                                            "wwww=wwwwwwwwww", Kind::kWholeWarp};
  f["mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"] = {multiply_m16n8k8_f16, "wwww=wwwwwww",
                                                           Kind::kWholeWarp};
  f["mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32"] = {
      multiply_m8n8k4_f16, "wwwwwwww=wwwwwwwwwwww", Kind::kWholeWarp};
  f["wgmma.fence.sync.aligned"] = {fence_products, "=", Kind::kWholeWarp};
  f["wgmma.commit_group.sync.aligned"] = {commit_products, "=", Kind::kWholeWarp};
  f["wgmma.wait_group.sync.aligned"] = {wait_products, "=n", Kind::kWholeWarp};
  return f;
}

template <class R, class A>
void convert_integer(Warp& w, const Instruction& i) {
  // Of a wider register the lowest bytes.
  const std::byte* from = w.registers + i.slot[1];
  const std::size_t step = i.width;
  each_lane<R>(w, i.slot[0], [&](unsigned l) {
    A a;
    std::memcpy(&a, from + l * step, sizeof a);
    return static_cast<R>(a);
  });
}
template <class R>
Handler conversion_to(unsigned from_bytes, bool is_signed) {
  switch (from_bytes) {
    case 1:
      return is_signed ? convert_integer<R, std::int8_t> : convert_integer<R, u8>;
    case 2:
      return is_signed ? convert_integer<R, s16> : convert_integer<R, u16>;
    case 4:
      return is_signed ? convert_integer<R, s32> : convert_integer<R, u32>;
    case 8:
      return convert_integer<R, u64>;
    default:
      return nullptr;
  }
}

template <class T>
void copy(Warp& w, const Instruction& i) {
  put(w, i.slot[0], w.reg<T>(i.slot[1]));
}

template <class Part, class Whole>
void join(Warp& w, const Instruction& i) {
  constexpr unsigned kParts = sizeof(Whole) / sizeof(Part);
  each_lane<Whole>(w, i.slot[0], [&](unsigned l) {
    Whole whole = 0;
    for (unsigned p = 0; p < kParts; ++p)
      whole |= static_cast<Whole>(static_cast<Whole>(w.reg<Part>(i.slot[1 + p])[l])
                                  << (8 * sizeof(Part) * p));
    return whole;
  });
}
template <class Part, class Whole>
void split(Warp& w, const Instruction& i) {
  constexpr unsigned kParts = sizeof(Whole) / sizeof(Part);
  alignas(64) Whole whole[kLanes];
  std::memcpy(whole, w.reg<Whole>(i.slot[kParts]), sizeof whole);
  for (unsigned p = 0; p < kParts; ++p)
    each_lane<Part>(w, i.slot[p], [&](unsigned l) {
      return static_cast<Part>(whole[l] >> (8 * sizeof(Part) * p));
    });
}

}  // namespace

const Form* find_form(std::string_view opcode) {
  static const Forms* forms = new Forms(make_forms());
  const auto found = forms->find(opcode);
  return found == forms->end() ? nullptr : &found->second;
}

Handler find_integer_conversion(unsigned to_bytes, unsigned from_bytes, bool is_signed) {
  switch (to_bytes) {
    case 2:
      return conversion_to<u16>(from_bytes, is_signed);
    case 4:
      return conversion_to<u32>(from_bytes, is_signed);
    case 8:
      return conversion_to<u64>(from_bytes, is_signed);
    default:
      return nullptr;
  }
}

Handler copy_of(unsigned bytes) {
  switch (bytes) {
    case 1:
      return copy<u8>;
    case 2:
      return copy<u16>;
    case 4:
      return copy<u32>;
    default:
      return copy<u64>;
  }
}
Handler join_of(unsigned part_bytes, unsigned parts) {
  if (part_bytes == 2 && parts == 2) return join<u16, u32>;
  if (part_bytes == 2 && parts == 4) return join<u16, u64>;
  if (part_bytes == 4 && parts == 2) return join<u32, u64>;
  return nullptr;
}
Handler split_of(unsigned part_bytes, unsigned parts) {
  if (part_bytes == 2 && parts == 2) return split<u16, u32>;
  if (part_bytes == 2 && parts == 4) return split<u16, u64>;
  if (part_bytes == 4 && parts == 2) return split<u32, u64>;
  return nullptr;
}

}  // namespace ptx
